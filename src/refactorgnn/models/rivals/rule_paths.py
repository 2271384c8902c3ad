"""Groundings of path rules: simple paths along the bodies of many rules at once, in bounded memory.

A body ``r1(x, z1), r2(z1, z2), r3(z2, y)`` is grounded by entities that all differ (object identity). That also keeps a
fact from supporting its own rule: a simple path from ``x`` to ``y`` of two steps or more never uses a fact between the
two, and a body of one step is never the head itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.models.rivals.facts import FactIndex, expanded, found, pieces

MAX_LENGTH = 3


@dataclass(frozen=True)
class _Level:
    """The nodes of one depth: sorted keys ``parent * num_relations + relation``, and the body that ends there or −1."""

    keys: Tensor
    bodies: Tensor


class BodyTrie:
    """Bodies by their common beginnings, so that each beginning is walked once.

    Args:
        roots: The tree that each body is in: what walks begin with, such as the head of its rule.
        bodies: Relations step by step, filled up with −1; shape ``(num_bodies, MAX_LENGTH)``. No root has
            two that are equal.
        num_relations: Relations, reciprocals included.
    """

    def __init__(self, roots: Tensor, bodies: Tensor, num_relations: int) -> None:
        self.num_relations = num_relations
        self.levels: list[_Level] = []
        nodes, numbers = roots, torch.arange(len(roots), device=roots.device)
        for step in range(MAX_LENGTH):
            goes_on = bodies[:, step] >= 0
            nodes, numbers, bodies = nodes[goes_on], numbers[goes_on], bodies[goes_on]
            keys, nodes = torch.unique(nodes * num_relations + bodies[:, step], return_inverse=True)
            ends = bodies[:, step + 1] < 0 if step + 1 < MAX_LENGTH else torch.ones_like(nodes, dtype=torch.bool)
            body_of = torch.full_like(keys, -1)
            body_of[nodes[ends]] = numbers[ends]
            self.levels.append(_Level(keys, body_of))


@dataclass(frozen=True)
class Walks:
    """Walks of the same number of steps.

    Args:
        owners: Who asked.
        nodes: The node of the trie, or the number of the body once it is complete.
        met: The entities met, the last one first.
    """

    owners: Tensor
    nodes: Tensor
    met: tuple[Tensor, ...]

    @property
    def ends(self) -> Tensor:
        """Where they are."""
        return self.met[0]

    def take(self, which: Tensor | slice) -> Walks:
        """Some of them."""
        return Walks(self.owners[which], self.nodes[which], tuple(entities[which] for entities in self.met))


def simple_paths(facts: FactIndex, trie: BodyTrie, roots: Tensor, starts: Tensor) -> Iterator[Walks]:
    """Every simple path from ``starts[i]`` along a body of the tree ``roots[i]``, some at a time.

    Yields:
        Paths whose owners are the ``i`` and whose nodes are the numbers of the bodies; several may have the same ends.
    """
    owners = torch.arange(len(starts), device=starts.device)
    yield from _walked(facts, trie, 0, Walks(owners, roots, (starts,)))


def _walked(facts: FactIndex, trie: BodyTrie, step: int, walks: Walks) -> Iterator[Walks]:
    if step == MAX_LENGTH or not len(walks.owners) or not len(trie.levels[step].keys):
        return
    for piece in pieces(facts.subject_queries[walks.ends], facts.most_paths):
        for longer in _one_step(facts, trie, step, walks.take(piece)):
            bodies = trie.levels[step].bodies[longer.nodes]
            yield Walks(longer.owners, bodies, longer.met).take(bodies >= 0)
            yield from _walked(facts, trie, step + 1, longer)


def _one_step(facts: FactIndex, trie: BodyTrie, step: int, walks: Walks) -> Iterator[Walks]:
    """Walk on by each relation that the trie allows, never to an entity that was met."""
    places, offsets = expanded(facts.subject_queries[walks.ends])
    queries = facts.subject_starts[walks.ends][places] + offsets
    keys = walks.nodes[places] * trie.num_relations + facts.query_relations[queries]
    allowed, children = found(trie.levels[step].keys, keys)
    places, queries = places[allowed], queries[allowed]
    for piece in pieces(facts.query_counts[queries], facts.most_paths):
        ways, offsets = expanded(facts.query_counts[queries[piece]])
        objects = facts.objects[facts.query_starts[queries[piece]][ways] + offsets]
        before = walks.take(places[piece][ways])
        is_new = torch.ones_like(objects, dtype=torch.bool)
        for entities in before.met:
            is_new &= objects != entities
        longer = Walks(before.owners, children[piece][ways], (objects, *before.met))
        yield longer.take(is_new)


def distinct_ends(paths: Iterable[Walks], num_bodies: int, facts: FactIndex) -> tuple[Tensor, Tensor, Tensor]:
    """What paths lead to, each once however many do: the owners, the bodies, the last entities; sorted."""
    num_entities = facts.num_entities
    merged: Tensor | None = None
    waiting: list[Tensor] = []
    for walks in paths:
        waiting.append((walks.owners * num_bodies + walks.nodes) * num_entities + walks.ends)
        # Merged whenever those that wait are as many as the rest: memory follows what is distinct.
        if sum(map(len, waiting)) > max(facts.most_paths, 0 if merged is None else len(merged)):
            merged, waiting = _union(merged, waiting), []
    keys = _union(merged, waiting)
    return keys // num_entities // num_bodies, keys // num_entities % num_bodies, keys % num_entities


def _union(merged: Tensor | None, waiting: list[Tensor]) -> Tensor:
    parts = waiting if merged is None else [merged, *waiting]
    return torch.unique(torch.cat(parts)) if parts else torch.empty(0, dtype=torch.int64)
