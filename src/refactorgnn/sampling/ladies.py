"""Layer-dependent importance sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.ops.sparse import SparsePattern
from refactorgnn.sampling.base import Sampler


class Ladies(Sampler):
    r"""LADIES (Zou et al., NeurIPS 2019): each layer draws the entities that matter most to all of those so far.

    With ``P`` the row-normalised adjacency (undirected, facts between the same two entities counted each) and ``S`` the
    entities so far, a layer draws ``width`` others without replacement, one after the other, with probability

    .. math::
        p_u \propto \sum_{v \in S} P_{vu}^2, \qquad u \notin S,

    and joins them to ``S``; where fewer neighbours are left, all come. Entities in ``S`` are not drawn again, as in the
    variant for heterogeneous graphs that the paper adapted (LADIES itself may draw them again, to no effect on the
    set). LADIES' reweighting of the drawn columns of ``P`` is for averages over neighbours; a ReFactor layer is the
    gradient of the sub-graph's own likelihood, so it is not done.
    """

    name = "ladies"

    def __init__(self, graph: KnowledgeGraph, depth: int, width: int) -> None:
        super().__init__(graph, depth, width)
        self._entries_of, self._columns, self._squares = _squared_entries(self.neighbours)

    def _around(self, seeds: Tensor, generator: torch.Generator) -> Tensor:
        is_chosen = torch.zeros(self.num_entities, dtype=torch.bool)
        importance = torch.zeros(self.num_entities, dtype=torch.float64)
        added = new = seeds
        for _ in range(self.depth):
            is_chosen[new] = True
            # The rows of what was chosen before are in the sum already.
            entries = self._entries_of.take_rows(new).columns
            importance.index_add_(0, self._columns[entries], self._squares[entries])
            candidates = ((importance > 0) & ~is_chosen).nonzero()[:, 0]
            new = draw_weighted(candidates, importance[candidates], self.width, generator)
            added = torch.cat([added, new])
        return added


def draw_weighted(items: Tensor, weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` of ``items`` (all, if there are no more) without replacement, one after the other by weight.

    A race: the item whose exponential clock of rate ``weight`` rings first comes first, which is the same distribution
    as drawing in sequence and has no limit on the number of items, unlike ``torch.multinomial``.
    """
    clocks = torch.empty_like(weights).exponential_(generator=generator) / weights
    return items[clocks.topk(min(count, len(items)), largest=False).indices]


def _squared_entries(neighbours: SparsePattern) -> tuple[SparsePattern, Tensor, Tensor]:
    """The different entries of the row-normalised ``P``: which each row has, the column of each and its square."""
    keys = neighbours.rows * neighbours.num_columns + neighbours.columns
    keys, multiplicities = torch.unique_consecutive(keys, return_counts=True)  # neighbours are sorted
    rows, columns = keys // neighbours.num_columns, keys % neighbours.num_columns
    squares = (multiplicities.double() / neighbours.counts[rows]).square()
    entries = SparsePattern.from_rows(rows, torch.arange(len(keys)), neighbours.num_rows, len(keys))
    return entries, columns, squares
