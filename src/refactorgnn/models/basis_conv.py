r"""The layer of R-GCN with basis decomposition, without a matrix for each relation.

PyG's ``RGCNConv`` makes all ``2 |R|`` matrices and goes through the relations one by one; backwards, each of them fills
a gradient the size of all, which is ``4 |R|² dim²`` numbers a layer. Here the order of the sums is another: with
``m_i`` the mean of the objects of query ``i = (s, r)``,

.. math::
    h'_s = W_0 h_s + b + \sum_b V_b \Bigl( \sum_{i \in Q(s)} a_{r_i b} \, m_i \Bigr),

so that a layer takes ``B |V| dim²`` multiplications instead of ``2 |R| |V| dim²``, and keeps ``(|Q| + B |V|) dim``
numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.sparse import sum_neighbours


class BasisConv(nn.Module):
    """One layer; parameters are those of PyG's ``RGCNConv``, drawn alike.

    Args:
        dim: The width of a state.
        num_relations: The number of relations, reciprocals included.
        num_bases: ``B``.
    """

    def __init__(self, dim: int, num_relations: int, num_bases: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_bases, dim, dim))
        self.comp = nn.Parameter(torch.empty(num_relations, num_bases))
        self.root = nn.Parameter(torch.empty(dim, dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        for parameter in (self.weight, self.comp, self.root):  # Glorot and Bengio (2010), each basis by itself
            bound = (6 / (parameter.shape[-2] + parameter.shape[-1])) ** 0.5
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, states: Tensor, queries: QueryIndex) -> Tensor:
        """The states after the layer, over the facts of ``queries``; shape ``(num_entities, dim)``."""
        assert queries.weights is None, "all facts count once"
        means = sum_neighbours(queries.answers, states) / queries.counts[:, None]
        of_subject = queries.by_subject
        shares = self.comp[queries.relations[of_subject.columns]].to(states.dtype)
        mixed = [sum_neighbours(of_subject, means, share.contiguous()) for share in shares.unbind(1)]
        heard = torch.cat(mixed, dim=1) @ self.weight.flatten(0, 1)
        return states @ self.root + heard + self.bias
