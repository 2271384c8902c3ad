"""The one interface of all samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.sampling.subgraphs import FactIndex, SubGraph, adjacency


class Sampler(ABC):
    """Draws a sub-graph of the train split around a mini-batch of its triples.

    The seeds of a sub-graph are the entities of the mini-batch and one entity drawn uniformly from the whole graph
    (which may happen to be one of them). A sampler adds entities around them; the sub-graph then holds all facts among
    the seeds and what was added.

    Args:
        graph: The graph to draw from.
        depth: How many hops to go from the seeds; in training, the number of layers.
        width: How many entities to draw a hop.
    """

    name: str

    def __init__(self, graph: KnowledgeGraph, depth: int, width: int) -> None:
        for kind, value in (("depth", depth), ("width", width)):
            if value < 1:
                raise UserError(f"a sampler cannot use {kind}={value}: choose 1 or more.")
        self.num_entities = graph.num_entities
        self.depth = depth
        self.width = width
        self.neighbours = adjacency(graph)
        self._facts = FactIndex(graph.triples("train"), graph.num_entities)

    def sample(self, targets: Tensor, generator: torch.Generator) -> SubGraph:
        """The sub-graph around ``targets``, triples of the graph's ids of shape ``(batch_size, 3)``."""
        global_node = torch.randint(self.num_entities, (1,), generator=generator)
        seeds = torch.cat([targets[:, [0, 2]].flatten(), global_node]).unique()
        nodes = torch.cat([seeds, self._around(seeds, generator)]).unique()
        return self._facts.induced(nodes, targets, int(global_node))

    @abstractmethod
    def _around(self, seeds: Tensor, generator: torch.Generator) -> Tensor:
        """The entities to add to ``seeds`` (sorted, distinct), in any order, repeated or not."""
