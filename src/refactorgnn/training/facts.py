"""Support and query: which facts of a step carry messages, and which are to be predicted."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex


class TrainingFacts:
    """The training facts of a graph, split anew for every step.

    A share of the facts is held out as targets and messages pass over the others. All facts between the same two
    entities are held out together: one that mirrors a target would give its answer away, as no test fact does. With
    ``mask=0`` targets and messages are all facts, as in the paper.

    Args:
        graph: The graph.
        mask: The share to hold out.
        device: Where to put the facts.
    """

    def __init__(self, graph: KnowledgeGraph, mask: float, device: torch.device) -> None:
        self.graph = graph
        self.mask = mask
        self.device = device
        self.triples = graph.triples("train").to(device)
        self.known = graph.queries("train").to(device)
        low, high = self.triples[:, [0, 2]].amin(1), self.triples[:, [0, 2]].amax(1)
        pairs, self._pair_of = torch.unique(low * graph.num_entities + high, return_inverse=True)
        self.num_pairs = len(pairs)

    def split(self) -> tuple[QueryIndex, QueryIndex]:
        """The facts that messages pass over, and those to predict."""
        if not self.mask:
            return self.known, self.known
        held_out = torch.rand(self.num_pairs).to(self.device) < self.mask
        held_out[torch.randint(self.num_pairs, (1,))] = True  # never nothing to predict
        is_target = held_out[self._pair_of]
        return self._grouped(self.triples[~is_target]), self._grouped(self.triples[is_target])

    def _grouped(self, triples: Tensor) -> QueryIndex:
        both = self.graph.with_reciprocals(triples)
        return QueryIndex.from_triples(both, self.graph.num_entities, 2 * self.graph.num_relations)
