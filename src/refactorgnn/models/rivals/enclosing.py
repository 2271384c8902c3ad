"""Enclosing sub-graphs of pairs of entities, extracted for many pairs at once.

A node of a pair is one number, ``pair * num_entities + entity``, so that a search from all roots is a search from one
set, hop by hop, and no pair is gone through by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.ops.edges import TypedEdges
from refactorgnn.ops.sparse import SparsePattern


@dataclass(frozen=True)
class EnclosingSubgraphs:
    """The sub-graphs of several pairs side by side, as one graph; nodes and edges come pair by pair.

    Args:
        nodes: The entity of each node; shape ``(num_nodes,)``.
        pair_of_node: Ascending; shape ``(num_nodes,)``.
        labels: The distances to head and tail, neither through the other; shape ``(num_nodes, 2)``.
        heads: The node that is the head of each pair; shape ``(num_pairs,)``.
        tails: The node that is its tail; shape ``(num_pairs,)``.
        sources: The node that each fact begins at; shape ``(num_edges,)``.
        types: The relation of each fact; shape ``(num_edges,)``.
        targets: The node that it ends at, ascending; shape ``(num_edges,)``.
    """

    nodes: Tensor
    pair_of_node: Tensor
    labels: Tensor
    heads: Tensor
    tails: Tensor
    sources: Tensor
    types: Tensor
    targets: Tensor

    @classmethod
    def without_facts(cls, num_pairs: int, device: torch.device) -> EnclosingSubgraphs:
        """Of pairs with nothing near both ends: the two alone. Which entities they are does not matter."""
        pairs = torch.arange(num_pairs, device=device)
        nothing, labels = pairs[:0], torch.tensor([[0, 1], [1, 0]], device=device)
        nodes = torch.zeros(2 * num_pairs, dtype=torch.int64, device=device)
        return cls(
            nodes,
            pairs.repeat_interleave(2),
            labels.repeat(num_pairs, 1),
            2 * pairs,
            2 * pairs + 1,
            nothing,
            nothing,
            nothing,
        )

    @property
    def num_pairs(self) -> int:
        """The number of pairs."""
        return self.heads.numel()

    @property
    def num_nodes(self) -> int:
        """The nodes of all sub-graphs."""
        return self.nodes.numel()

    def edges(self, num_types: int) -> TypedEdges:
        """The facts as edges of ``num_types`` types."""
        return TypedEdges(self.sources, self.types, self.targets, self.num_nodes, num_types)

    def sizes(self, of_node: int = 1, of_edge: int = 1) -> Tensor:
        """What the sub-graph of each pair takes, if a node and an edge take so much; shape ``(num_pairs,)``."""
        nodes = torch.bincount(self.pair_of_node, minlength=self.num_pairs)
        edges = torch.bincount(self.pair_of_node[self.targets], minlength=self.num_pairs)
        return of_node * nodes + of_edge * edges

    def groups(self, most: int, of_node: int = 1, of_edge: int = 1) -> Iterator[EnclosingSubgraphs]:
        """Consecutive pairs that take at most ``most`` together, or one pair that takes more."""
        for pairs in consecutive_groups(self.sizes(of_node, of_edge), most):
            yield self.take(pairs)

    def take(self, pairs: slice) -> EnclosingSubgraphs:
        """The sub-graphs of consecutive pairs."""
        bounds = self.pair_of_node.new_tensor([pairs.start, pairs.stop])
        first, last = torch.searchsorted(self.pair_of_node, bounds).tolist()
        low, high = torch.searchsorted(self.pair_of_node[self.targets].contiguous(), bounds).tolist()
        nodes, edges = slice(first, last), slice(low, high)
        return EnclosingSubgraphs(
            self.nodes[nodes],
            self.pair_of_node[nodes] - pairs.start,
            self.labels[nodes],
            self.heads[pairs] - first,
            self.tails[pairs] - first,
            self.sources[edges] - first,
            self.types[edges],
            self.targets[edges] - first,
        )


def consecutive_groups(sizes: Tensor, most: int) -> Iterator[slice]:
    """Slices that cover ``sizes``, each of a sum of at most ``most`` or of one element; an empty one of nothing.

    The latter is for a process that has no share of a batch, and still takes part in its gradient.
    """
    if not len(sizes):
        yield slice(0, 0)
    ends = sizes.cumsum(0).cpu()
    start, before = 0, 0
    while start < len(ends):
        stop = max(start + 1, int(torch.searchsorted(ends, before + most, right=True)))
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])


class Surroundings:
    """The facts of a graph, ready for extraction.

    Args:
        queries: The facts and their reciprocals.
        num_hops: ``k``: an enclosing sub-graph has the entities at most ``k`` hops from head and tail.
    """

    def __init__(self, queries: QueryIndex, num_hops: int) -> None:
        self.num_hops = num_hops
        self.num_entities = queries.num_entities
        subjects, relations, objects = queries.facts
        self.neighbours = _pattern(torch.unique(subjects * self.num_entities + objects), self.num_entities)
        is_back = relations >= queries.num_relations // 2  # so that a row has the facts that end at an entity
        self.facts = SparsePattern.from_rows(subjects[is_back], objects[is_back], self.num_entities, self.num_entities)
        self.fact_types = relations[is_back] - queries.num_relations // 2

    @property
    def device(self) -> torch.device:
        """Where the facts are."""
        return self.fact_types.device

    @cached_property
    def most_visits(self) -> Tensor:
        """How many steps a search from each entity takes at the most, and its facts; shape ``(num_entities,)``.

        A search takes no more steps than there are walks of its length, and none twice within a hop.
        """
        degrees = self.neighbours.counts.double()
        total, walks = torch.ones_like(degrees), torch.ones_like(degrees)
        for _ in range(self.num_hops + 1):
            reached = torch.zeros_like(walks).index_add_(0, self.neighbours.rows, walks[self.neighbours.columns])
            walks = reached.clamp(max=float(self.neighbours.num_edges + self.facts.num_edges))
            total = total + walks
        return total.long()

    def extract(self, heads: Tensor, relations: Tensor, tails: Tensor) -> EnclosingSubgraphs:
        """The enclosing sub-graphs of ``(head, relation, tail)``, without that fact itself; each of shape ``(P,)``.

        They are the facts among the entities that are near both (at most ``k`` hops, the tail not being passed on the
        way from the head, nor the head from the tail), and the two. Labels are distances inside the sub-graph, (0, 1)
        for the head and (1, 0) for the tail, as the paper has them ((0, 0) where both are one entity); entities that
        are more than ``k`` hops away inside are left out. (The authors' code looks for entities that are near by any
        way, the other end's included, before it labels them, which leaves a few more.)
        """
        span = self.num_entities
        pairs = torch.arange(len(heads), device=heads.device)
        near_head, near_tail = self._near(heads, tails, self.num_hops), self._near(tails, heads, self.num_hops)
        roots = torch.cat([pairs * span + heads, pairs * span + tails])
        keys = torch.unique(torch.cat([near_head[_is_in(near_head, near_tail)], roots]))
        whole = self._induced(keys, heads, relations, tails)
        labels = torch.stack([_distances(whole, whole.heads, whole.tails, self.num_hops)] * 2, dim=1)
        labels[:, 1] = _distances(whole, whole.tails, whole.heads, self.num_hops)
        labels[whole.heads] = labels.new_tensor([0, 1])
        labels[whole.tails] = labels.new_tensor([1, 0])
        labels[whole.heads[whole.heads == whole.tails]] = 0
        return _pruned(whole, labels, (labels <= self.num_hops).all(dim=1))

    def connectable(self, entity: int) -> Tensor:
        """The entities, ascending, whose sub-graph with ``entity`` can have facts.

        They are those at most ``2k`` hops away, and those that have a fact with themselves; all, if it has one.
        """
        if self._has_loop[entity]:
            return torch.arange(self.num_entities, device=self.device)
        root = self.fact_types.new_tensor([entity])
        near = self._has_loop.clone()
        near[self._near(root, root, 2 * self.num_hops)] = True
        return near.nonzero().squeeze(1)

    @cached_property
    def _has_loop(self) -> Tensor:
        """Which entities have a fact with themselves; shape ``(num_entities,)``."""
        found = torch.zeros(self.num_entities, dtype=torch.bool, device=self.device)
        found[self.facts.columns[self.facts.rows == self.facts.columns]] = True
        return found

    def _near(self, roots: Tensor, avoided: Tensor, num_hops: int) -> Tensor:
        """The sorted keys of the entities at most ``num_hops`` from each root, by ways that avoid an entity."""
        span = self.num_entities
        pairs = torch.arange(len(roots), device=roots.device)
        walls = pairs * span + avoided
        walls = walls[roots != avoided]
        seen = frontier = pairs * span + roots
        for _ in range(num_hops):
            steps = self.neighbours.take_rows(frontier % span)
            reached = torch.unique((frontier // span)[steps.rows] * span + steps.columns)
            frontier = reached[~_is_in(reached, seen) & ~_is_in(reached, walls)]
            seen = torch.cat([seen, frontier]).sort().values
        return seen

    def _induced(self, keys: Tensor, heads: Tensor, relations: Tensor, tails: Tensor) -> EnclosingSubgraphs:
        """All facts among the nodes ``keys``, but those asked about; no labels yet."""
        span = self.num_entities
        pair_of_node, nodes = keys // span, keys % span
        pairs = torch.arange(len(heads), device=heads.device)
        found = self.facts.take_rows(nodes)
        places = SparsePattern(self.facts.offsets, torch.arange(self.facts.num_edges, device=keys.device), span)
        types = self.fact_types[places.take_rows(nodes).columns]
        targets, subjects = found.rows, found.columns
        pair = pair_of_node[targets]
        source_keys = pair * span + subjects
        is_asked = (subjects == heads[pair]) & (nodes[targets] == tails[pair]) & (types == relations[pair])
        kept = _is_in(source_keys, keys) & ~is_asked
        return EnclosingSubgraphs(
            nodes,
            pair_of_node,
            keys.new_empty(0, 2),
            torch.searchsorted(keys, pairs * span + heads),
            torch.searchsorted(keys, pairs * span + tails),
            torch.searchsorted(keys, source_keys[kept]),
            types[kept],
            targets[kept],
        )


def _pattern(keys: Tensor, span: int) -> SparsePattern:
    return SparsePattern.from_rows(keys // span, keys % span, span, span)


def _is_in(keys: Tensor, others: Tensor) -> Tensor:
    """Which keys are among ``others``, which are sorted."""
    if not len(others):
        return torch.zeros_like(keys, dtype=torch.bool)
    place = torch.searchsorted(others, keys).clamp_(max=len(others) - 1)
    return others[place] == keys


def _distances(subgraphs: EnclosingSubgraphs, roots: Tensor, avoided: Tensor, num_hops: int) -> Tensor:
    """Hops from the root of each pair, facts being passed either way; ``num_hops + 1`` where there are more."""
    far = num_hops + 1
    is_wall = torch.zeros_like(subgraphs.nodes, dtype=torch.bool)
    is_wall[avoided[avoided != roots]] = True
    distances = torch.full_like(subgraphs.nodes, far)
    distances[roots] = 0
    ends = torch.cat([subgraphs.sources, subgraphs.targets]), torch.cat([subgraphs.targets, subgraphs.sources])
    is_open = ~(is_wall[ends[0]] | is_wall[ends[1]])
    begin, end = ends[0][is_open], ends[1][is_open]
    for _ in range(num_hops):
        distances = distances.scatter_reduce(0, end, distances[begin] + 1, "amin").clamp_(max=far)
    return distances


def _pruned(subgraphs: EnclosingSubgraphs, labels: Tensor, kept: Tensor) -> EnclosingSubgraphs:
    """The nodes that are kept, the pairs' own among them, and the edges between them."""
    place = kept.cumsum(0) - 1
    edges = kept[subgraphs.sources] & kept[subgraphs.targets]
    return EnclosingSubgraphs(
        subgraphs.nodes[kept],
        subgraphs.pair_of_node[kept],
        labels[kept],
        place[subgraphs.heads],
        place[subgraphs.tails],
        place[subgraphs.sources[edges]],
        subgraphs.types[edges],
        place[subgraphs.targets[edges]],
    )
