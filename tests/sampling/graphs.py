"""Small random graphs, and the dense adjacency to compare samplers with."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data import KnowledgeGraph, Vocabulary


def random_graph(num_entities: int, num_triples: int, num_relations: int = 3, seed: int = 0) -> KnowledgeGraph:
    """Distinct triples with parallel facts and self-loops; the last entity has no train facts."""
    generator = torch.Generator().manual_seed(seed)
    triples = torch.randint(0, num_entities - 1, (num_triples, 3), generator=generator)
    triples[:, 1] %= num_relations
    return KnowledgeGraph(
        "random",
        Vocabulary([f"entity {number:04d}" for number in range(num_entities)], "entity"),
        Vocabulary([f"relation {number}" for number in range(num_relations)], "relation"),
        {"train": triples.unique(dim=0)[torch.randperm(len(triples.unique(dim=0)), generator=generator)]},
    )


def transition_matrix(graph: KnowledgeGraph) -> Tensor:
    """``P``: facts in both directions, counted, each row divided by its sum (0 for an entity without facts)."""
    counts = torch.zeros(graph.num_entities, graph.num_entities, dtype=torch.float64)
    for head, _, tail in graph.triples("train").tolist():
        counts[head, tail] += 1
        counts[tail, head] += 1
    return counts / counts.sum(1, keepdim=True).clamp(min=1)


def assert_frequencies(seen: dict[object, int], expected: dict[object, float]) -> None:
    """A chi-square test that the counts come from the distribution, at four standard deviations."""
    total = sum(seen.values())
    assert set(seen) <= {outcome for outcome, probability in expected.items() if probability > 0}
    assert abs(sum(expected.values()) - 1) < 1e-9
    statistic = sum((seen.get(key, 0) - total * p) ** 2 / (total * p) for key, p in expected.items() if p > 0)
    freedom = len(expected) - 1
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5, (statistic, freedom)
