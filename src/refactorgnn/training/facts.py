"""Support and query: which facts of a step carry messages, and which are to be predicted."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.sparse import SparsePattern

MaskBy = Literal["fact", "pair"]


class TrainingFacts:
    """The training facts of a graph, split anew for every step.

    A share of the facts is held out as targets and messages pass over the others. With ``mask=0`` targets and messages
    are all facts, as in the paper.

    Facts may be held out one by one, which is how a benchmark's test facts were taken out of its graph: others between
    the same two entities stay, a mirror image for instance. Or all between two entities are held out together, so that
    what is learned has to do without such help.

    Args:
        graph: The graph.
        mask: The share to hold out.
        device: Where to put the facts.
        by: What is held out together.
        fixed_shapes: Split by weights of 0 and 1 instead of grouping each half anew: the same sums, of more terms, with
            no sorting and no tensor that changes its shape, which is what a GPU wants.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        mask: float,
        device: torch.device,
        *,
        by: MaskBy = "pair",
        fixed_shapes: bool = False,
    ) -> None:
        self.graph = graph
        self.mask = mask
        self.by = by
        self.device = device
        self.fixed_shapes = fixed_shapes
        self.triples = graph.triples("train").to(device)
        self.known = graph.queries("train").to(device)
        edges = torch.stack(self.known.facts, dim=1)
        units, self._unit_of_edge = torch.unique(self._units(edges), return_inverse=True)
        self._unit_of = torch.searchsorted(units, self._units(self.triples))
        self.num_units = len(units)

    def _units(self, triples: Tensor) -> Tensor:
        """A number for what is held out together, the same for a fact and its reciprocal."""
        one, relations, other = triples.unbind(1)
        is_reciprocal = relations >= self.graph.num_relations
        one, other = torch.where(is_reciprocal, other, one), torch.where(is_reciprocal, one, other)
        if self.by == "pair":  # whichever comes first
            return torch.minimum(one, other) * self.graph.num_entities + torch.maximum(one, other)
        kinds = relations % self.graph.num_relations
        return (one * self.graph.num_relations + kinds) * self.graph.num_entities + other

    def split(self) -> tuple[QueryIndex, QueryIndex]:
        """The facts that messages pass over, and those to predict."""
        if not self.mask:
            return self.known, self.known
        held_out = torch.rand(self.num_units, device=self.device) < self.mask
        some = torch.randint(self.num_units, (1,), device=self.device)
        held_out.index_fill_(0, some, True)  # never nothing to predict
        if self.fixed_shapes:
            targets = held_out[self._unit_of_edge].float()
            return self.known.weighted(1 - targets), self.known.weighted(targets)
        is_target = held_out[self._unit_of]
        return self._grouped(self.triples[~is_target]), self._grouped(self.triples[is_target])

    def answers_to(self, targets: QueryIndex) -> SparsePattern:
        """All known answers to the questions of ``targets``, which are no negatives."""
        if targets.answers is self.known.answers:
            return self.known.answers
        return self.known.objects_of(targets.subjects, targets.relations)

    def _grouped(self, triples: Tensor) -> QueryIndex:
        both = self.graph.with_reciprocals(triples)
        return QueryIndex.from_triples(both, self.graph.num_entities, 2 * self.graph.num_relations)
