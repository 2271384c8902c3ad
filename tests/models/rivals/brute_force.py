"""Rules by the book: every grounding written out, on graphs small enough for that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary

NUM_RELATIONS = 3
Body = tuple[int, ...]


def random_graph(seed: int, num_entities: int = 11, num_facts: int = 60, prefix: str = "e") -> KnowledgeGraph:
    """Facts with parallel relations, mirror images and loops among them, and an entity without facts."""
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(n, (num_facts,), generator=generator) for n in (num_entities, NUM_RELATIONS, num_entities)]
    triples = torch.unique(torch.stack(columns, dim=1), dim=0)
    chosen = torch.randperm(len(triples), generator=generator)
    splits = {"train": triples[chosen[6:]], "valid": triples[chosen[:3]], "test": triples[chosen[3:6]]}
    names = [f"{prefix}{i:02}" for i in range(num_entities + 1)], [f"r{i}" for i in range(NUM_RELATIONS)]
    return KnowledgeGraph("g", Vocabulary(names[0], "entity"), Vocabulary(names[1], "relation"), splits)


def facts_of(graph: KnowledgeGraph) -> set[tuple[int, int, int]]:
    """The train facts and their reciprocals, without loops."""
    triples = graph.with_reciprocals(graph.triples("train")).tolist()
    return {(s, r, o) for s, r, o in triples if s != o}


def all_bodies() -> list[Body]:
    relations = range(2 * NUM_RELATIONS)
    return [body for length in (1, 2, 3) for body in product(relations, repeat=length)]


def pairs(facts: set[tuple[int, int, int]], body: Body) -> set[tuple[int, int]]:
    """The ends of every path of different entities."""
    return {(path[0], path[-1]) for path in _paths(facts, body)}


def _paths(facts: set[tuple[int, int, int]], body: Body) -> Iterator[tuple[int, ...]]:
    paths = [(s,) for s in {s for s, _, _ in facts}]
    for relation in body:
        paths = [(*p, o) for p in paths for s, r, o in facts if s == p[-1] and r == relation and o not in p]
    return iter(paths)


def padded(body: Body) -> list[int]:
    return [*body, *[-1] * (3 - len(body))]
