"""Sub-graphs around a mini-batch of triples: what a sampler makes and a training step uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.ops.sparse import SparsePattern


@dataclass(frozen=True)
class SubGraph:
    """A mini-batch of triples to predict and the facts among some entities to pass messages over.

    Entities are numbered within the sub-graph: local id ``i`` is the graph's entity ``nodes[i]``. Relations keep the
    graph's ids, and reciprocals are left to whoever uses the triples (``graph.with_reciprocals``).

    Args:
        nodes: The graph's ids of the entities, sorted and distinct; shape ``(num_nodes,)``.
        triples: All facts among them, in local ids; shape ``(num_edges, 3)``.
        is_target: Whether a fact joins the same two entities as a target does, in either direction. Such facts give
            a target's answer away; drop them (``triples[~is_target]``) to learn to predict what messages do not say.
            Shape ``(num_edges,)``.
        targets: The mini-batch in local ids; shape ``(batch_size, 3)``.
        global_node: The local id of the entity drawn from the whole graph.
    """

    nodes: Tensor
    triples: Tensor
    is_target: Tensor
    targets: Tensor
    global_node: int

    @property
    def num_nodes(self) -> int:
        """The number of entities."""
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        """The number of facts among them."""
        return len(self.triples)

    @property
    def candidates(self) -> Tensor:
        """The candidates of the loss, in local ids, sorted: the entities of the mini-batch and the global one.

        They are the in-batch negatives of the paper and its one global negative; a target's own entities are among
        them.
        """
        in_batch = self.targets[:, [0, 2]].flatten()
        candidates: Tensor = torch.cat([in_batch, in_batch.new_tensor([self.global_node])]).unique()
        return candidates

    def to(self, device: torch.device | str) -> SubGraph:
        """The same sub-graph on another device."""
        return SubGraph(
            self.nodes.to(device),
            self.triples.to(device),
            self.is_target.to(device),
            self.targets.to(device),
            self.global_node,
        )


class FactIndex:
    """The facts of a graph sorted by head, to find those among a set of entities without reading all of them.

    Args:
        triples: Shape ``(num_triples, 3)``.
        num_entities: The number of entities.
    """

    def __init__(self, triples: Tensor, num_entities: int) -> None:
        self.triples = triples[torch.argsort(triples[:, 0], stable=True)]
        places = torch.arange(len(triples))
        self._rows_of = SparsePattern.from_rows(self.triples[:, 0], places, num_entities, len(triples))

    def induced(self, nodes: Tensor, targets: Tensor, global_node: int) -> SubGraph:
        """The sub-graph of all facts among ``nodes`` (sorted, distinct, with those of ``targets`` among them).

        All ids are the graph's.
        """
        outgoing = self.triples[self._rows_of.take_rows(nodes).columns]
        tails = outgoing[:, 2].contiguous()
        place = torch.searchsorted(nodes, tails).clamp_(max=len(nodes) - 1)
        triples = _renumbered(nodes, outgoing[nodes[place] == tails])
        local_targets = _renumbered(nodes, targets)
        is_target = torch.isin(_pair_keys(triples, len(nodes)), _pair_keys(local_targets, len(nodes)))
        return SubGraph(nodes, triples, is_target, local_targets, int(torch.searchsorted(nodes, global_node)))


def adjacency(graph: KnowledgeGraph) -> SparsePattern:
    """The undirected neighbours of each entity in the train split: facts and their reciprocals, each counted."""
    head, _, tail = graph.with_reciprocals(graph.triples("train")).unbind(1)
    order = torch.argsort(head * graph.num_entities + tail)
    return SparsePattern.from_rows(head[order], tail[order], graph.num_entities, graph.num_entities)


def _renumbered(nodes: Tensor, triples: Tensor) -> Tensor:
    head, relation, tail = triples.T.contiguous()
    return torch.stack([torch.searchsorted(nodes, head), relation, torch.searchsorted(nodes, tail)], dim=1)


def _pair_keys(triples: Tensor, num_nodes: int) -> Tensor:
    """One number for the two entities of each triple, whatever their order."""
    head, _, tail = triples.unbind(1)
    return torch.minimum(head, tail) * num_nodes + torch.maximum(head, tail)
