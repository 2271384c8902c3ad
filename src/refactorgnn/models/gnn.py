"""The baselines of the paper that compute entity states: no pretraining, R-GCN and GAT.

All are :class:`~refactorgnn.models.encoder.StateEncoder`: features, facts and decoder are those of the ReFactor GNN, so
that what differs is the layer alone. Unlike its, theirs have weights of their own: parameters grow with the depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, relu

from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.errors import UserError
from refactorgnn.models.base import initial_relations
from refactorgnn.models.basis_conv import BasisConv
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.features import Features, SignatureFeatures
from refactorgnn.scorers import make_scorer
from refactorgnn.seeds import LAYERS, combined_seed


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """What is drawn inside depends on ``seed`` alone, and the global generator stays as it was.

    PyG's layers draw their weights from the global generator and take no other. They are made on the CPU, so the
    generators of other devices are left alone (``torch.manual_seed`` would reset them).
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class _Baseline(StateEncoder):
    """A model with relation embeddings for the decoder only: no layer reads them."""

    def __init__(
        self,
        relations: Vocabulary,
        features: Features,
        scorer: str,
        dim: int,
        num_draws: int,
        init_scale: float,
        seed: int,
    ) -> None:
        super().__init__(relations, features, num_draws=num_draws)
        self.scorer = make_scorer(scorer, dim)
        self.relations = initial_relations(relations, self.scorer, init_scale, seed)

    @property
    def relation_embeddings(self) -> nn.Parameter:
        """The decoder's relation embeddings."""
        return self.relations


class NoPretrain(_Baseline):
    """The decoder on the features, with nothing learned: what the others have to beat.

    States are the features, relation embeddings are their initial values, and neither asks for a gradient.

    Args:
        relations: The relations; reciprocals are added.
        features: The states of the entities; their own weights, if any, are frozen.
        scorer: The name of a registered scorer.
        dim: The width of an entity state.
        num_draws: How many random draws of the features are averaged when answering.
        init_scale: The standard deviation of the relation embeddings.
        seed: Their seed.
    """

    def __init__(
        self,
        relations: Vocabulary,
        features: Features,
        scorer: str = "distmult",
        dim: int = 384,
        *,
        num_draws: int = 1,
        init_scale: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(relations, features, scorer, dim, num_draws, init_scale, seed)
        self.requires_grad_(False)
        self.uses_facts = any(isinstance(part, SignatureFeatures) for part in features.modules())

    def propagate(self, states: Tensor, queries: QueryIndex) -> Tensor:
        """The features, as they are."""
        return states


class RGCN(_Baseline):
    r"""R-GCN (`Schlichtkrull et al., 2018 <https://arxiv.org/abs/1703.06103>`_) with basis decomposition.

    A layer is

    .. math::
        h'_s = W_0 h_s + b + \sum_r \frac{1}{|N_r(s)|} \sum_{o \in N_r(s)} W_r h_o,
        \qquad W_r = \textstyle\sum_b a_{rb} V_b,

    with ReLU and dropout between layers and neither after the last. ``L`` layers have
    ``L ((B + 1) dim² + 2 |R| B + dim)`` parameters. The matrices ``W_r`` are never made
    (:mod:`refactorgnn.models.basis_conv`): a layer takes ``B |V| dim²`` multiplications, and training keeps
    ``(|Q| + B |V|) dim`` numbers.

    Args:
        relations: The relations; reciprocals are added.
        features: Where the states of the entities start.
        scorer: The name of a registered scorer.
        dim: The width of an entity state.
        num_layers: ``L``.
        num_bases: ``B``, shared by the relations of a layer.
        dropout: The share of the numbers between layers that is dropped while training.
        num_draws: How many random draws of the features are averaged when answering.
        init_scale: The standard deviation of the decoder's initial relation embeddings.
        seed: The seed of all initial weights.
    """

    def __init__(
        self,
        relations: Vocabulary,
        features: Features,
        scorer: str = "distmult",
        dim: int = 384,
        *,
        num_layers: int = 2,
        num_bases: int = 8,
        dropout: float = 0.0,
        num_draws: int = 1,
        init_scale: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(relations, features, scorer, dim, num_draws, init_scale, seed)
        _check_at_least_one(num_layers=num_layers, num_bases=num_bases)
        self.dropout = dropout
        with drawn_from(combined_seed(seed, LAYERS)):
            self.layers = nn.ModuleList(BasisConv(dim, 2 * len(relations), num_bases) for _ in range(num_layers))

    def propagate(self, states: Tensor, queries: QueryIndex) -> Tensor:
        """The states after all layers over ``queries``; shape ``(num_entities, dim)``."""
        for number, layer in enumerate(self.layers):
            if number > 0:
                states = dropout(relu(states), self.dropout, self.training)
            states = layer(states, queries)
        return states


class GAT(_Baseline):
    r"""A graph attention network (`Veličković et al., 2018 <https://arxiv.org/abs/1710.10903>`_) that reads edge types.

    A layer is that of PyG's ``GATConv``; each of its heads computes ``dim / heads`` numbers,

    .. math::
        h'_s = b + \sum_{(s, r, o)} \alpha_{sro} \Theta h_o, \qquad
        \alpha_{sro} = \mathrm{softmax}_{(r, o)}\, \mathrm{LeakyReLU}
        \big(a_t \cdot \Theta h_s + a_s \cdot \Theta h_o + a_e \cdot \Theta_e e_r\big),

    with ELU and dropout between layers and neither after the last. ``e_r`` is learned for each relation and layer. A
    relation acts on the attention only, by one number for each head, so embeddings of width ``heads`` say all there is
    to say.

    Self-loops and residuals are PyG's defaults: facts ``(s, r, s)`` make way for one loop at every entity, whose ``e``
    is the mean over the edges that reach it from others (0 without any); there is no residual connection, the loop
    carries the state. An isolated entity becomes ``Θ h + b``.

    With ``combine``, the result is a learned linear map of the outputs of all layers side by side: jumping knowledge
    by concatenation (`Xu et al., 2018 <https://arxiv.org/abs/1806.03536>`_), PyG's ``JumpingKnowledge("cat")``.

    ``L`` layers have ``L (dim² + heads dim + 4 dim + 2 |R| heads)`` parameters, ``combine`` adds ``L dim² + dim``.
    The sum over edges is taken without storing messages (:mod:`refactorgnn.models.attention`): training keeps some
    ``|V| dim`` and ``|E| heads`` numbers a layer.

    Args:
        relations: The relations; reciprocals are added.
        features: Where the states of the entities start.
        scorer: The name of a registered scorer.
        dim: The width of an entity state, a multiple of ``heads``.
        num_layers: ``L``.
        heads: The number of attention heads, side by side in a state.
        combine: Whether the decoder gets the outputs of all layers or the last one's.
        dropout: The share of the numbers between layers that is dropped while training.
        num_draws: How many random draws of the features are averaged when answering.
        init_scale: The standard deviation of the decoder's initial relation embeddings.
        seed: The seed of all initial weights.
    """

    def __init__(
        self,
        relations: Vocabulary,
        features: Features,
        scorer: str = "distmult",
        dim: int = 384,
        *,
        num_layers: int = 3,
        heads: int = 8,
        combine: bool = False,
        dropout: float = 0.0,
        num_draws: int = 1,
        init_scale: float = 0.1,
        seed: int = 0,
    ) -> None:
        from torch_geometric.nn import GATConv, JumpingKnowledge  # slow to import, and few callers need them

        super().__init__(relations, features, scorer, dim, num_draws, init_scale, seed)
        _check_at_least_one(num_layers=num_layers, heads=heads)
        check_heads(dim, heads)
        self.dropout = dropout
        with drawn_from(combined_seed(seed, LAYERS)):
            self.edge_types = nn.ModuleList(nn.Embedding(2 * len(relations), heads) for _ in range(num_layers))
            self.layers = nn.ModuleList(
                GATConv(dim, dim // heads, heads=heads, edge_dim=heads) for _ in range(num_layers)
            )
            self.combined = (
                nn.Sequential(JumpingKnowledge("cat"), nn.Linear(num_layers * dim, dim)) if combine else None
            )

    def propagate(self, states: Tensor, queries: QueryIndex) -> Tensor:
        """The states after all layers over ``queries``; shape ``(num_entities, dim)``."""
        from refactorgnn.models.attention import attend  # as slow to import as PyG

        outputs: list[Tensor] = []
        for embedding, layer in zip(self.edge_types, self.layers, strict=True):
            if outputs:
                states = dropout(elu(outputs[-1]), self.dropout, self.training)
            assert isinstance(embedding, nn.Embedding)
            outputs.append(attend(layer, states, queries, embedding.weight))
        if self.combined is None:
            return outputs[-1]
        result: Tensor = self.combined(outputs)
        return result


def check_heads(dim: int, heads: int) -> None:
    """Refuse a width that attention heads cannot share."""
    if dim % heads:
        raise UserError(f"dim={dim} cannot be shared by {heads} heads: choose a dim that is a multiple of {heads}.")


def _check_at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UserError(f"{name}={count} leaves nothing to compute: choose 1 or more.")
