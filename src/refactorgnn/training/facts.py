"""Support and query: which facts of a step carry messages, and which are to be predicted."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.sparse import SparsePattern


class TrainingFacts:
    """The training facts of a graph, split anew for every step.

    A share of the facts is held out as targets and messages pass over the others. All facts between the same two
    entities are held out together: one that mirrors a target would give its answer away, as no test fact does. With
    ``mask=0`` targets and messages are all facts, as in the paper.

    Args:
        graph: The graph.
        mask: The share to hold out.
        device: Where to put the facts.
        fixed_shapes: Split by weights of 0 and 1 instead of grouping each half anew: the same sums, of more terms, with
            no sorting and no tensor that changes its shape, which is what a GPU wants.
    """

    def __init__(self, graph: KnowledgeGraph, mask: float, device: torch.device, *, fixed_shapes: bool = False) -> None:
        self.graph = graph
        self.mask = mask
        self.device = device
        self.fixed_shapes = fixed_shapes
        self.triples = graph.triples("train").to(device)
        self.known = graph.queries("train").to(device)
        subjects, objects = self.known.subjects[self.known.answers.rows], self.known.answers.columns
        pairs, self._pair_of_edge = torch.unique(self._pair_keys(subjects, objects), return_inverse=True)
        self._pair_of = torch.searchsorted(pairs, self._pair_keys(*self.triples[:, [0, 2]].unbind(1)))
        self.num_pairs = len(pairs)

    def _pair_keys(self, one: Tensor, other: Tensor) -> Tensor:
        """One number for two entities, whichever comes first."""
        return torch.minimum(one, other) * self.graph.num_entities + torch.maximum(one, other)

    def split(self) -> tuple[QueryIndex, QueryIndex]:
        """The facts that messages pass over, and those to predict."""
        if not self.mask:
            return self.known, self.known
        held_out = torch.rand(self.num_pairs, device=self.device) < self.mask
        some = torch.randint(self.num_pairs, (1,), device=self.device)
        held_out.index_fill_(0, some, True)  # never nothing to predict
        if self.fixed_shapes:
            targets = held_out[self._pair_of_edge].float()
            return self.known.weighted(1 - targets), self.known.weighted(targets)
        is_target = held_out[self._pair_of]
        return self._grouped(self.triples[~is_target]), self._grouped(self.triples[is_target])

    def answers_to(self, targets: QueryIndex) -> SparsePattern:
        """All known answers to the questions of ``targets``, which are no negatives."""
        if targets.answers is self.known.answers:
            return self.known.answers
        return self.known.objects_of(targets.subjects, targets.relations)

    def _grouped(self, triples: Tensor) -> QueryIndex:
        both = self.graph.with_reciprocals(triples)
        return QueryIndex.from_triples(both, self.graph.num_entities, 2 * self.graph.num_relations)
