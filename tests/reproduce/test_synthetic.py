"""Synthetic graphs are of just the sizes asked for."""

from __future__ import annotations

import pytest
import torch

from refactorgnn.errors import UserError
from refactorgnn.reproduce.synthetic import synthetic_graph


@pytest.mark.parametrize(
    ("num_entities", "num_relations", "num_triples"),
    [
        (200, 7, 1500),
        (201, 3, 101),  # the fewest, an odd number of entities
        (2, 5, 5),  # more relations than pairs
        (5, 40, 40),
        (30, 2, 435),  # a quarter of all triples there can be
    ],
)
def test_counts_are_exact_and_everything_occurs(num_entities: int, num_relations: int, num_triples: int) -> None:
    graph = synthetic_graph(num_entities, num_relations, num_triples, seed=3)
    triples = graph.triples("train")
    assert (graph.num_entities, graph.num_relations) == (num_entities, num_relations)
    assert triples.shape == (num_triples, 3)
    assert len(torch.unique(triples, dim=0)) == num_triples
    assert torch.equal(torch.unique(triples[:, [0, 2]]), torch.arange(num_entities))
    assert torch.equal(torch.unique(triples[:, 1]), torch.arange(num_relations))
    assert (triples[:, 0] != triples[:, 2]).all()


def test_a_seed_is_a_graph() -> None:
    graphs = [synthetic_graph(100, 4, 600, seed).triples("train") for seed in (1, 1, 2)]
    assert torch.equal(graphs[0], graphs[1])
    assert not torch.equal(graphs[0], graphs[2])


def test_degrees_are_skewed() -> None:
    degrees = torch.bincount(synthetic_graph(1000, 10, 10_000).triples("train")[:, [0, 2]].flatten())
    # A tenth of the entities would have 10 % of the 20,000 ends if all were alike. By the power law k^-¾ the first 100
    # of 1000 have Σ_{k≤100} k^-¾ / Σ_{k≤1000} k^-¾ = 9.23 / 19.06 = 48 % of the 19,000 drawn, and 10 % of the others.
    share = float(degrees.sort(descending=True).values[:100].sum()) / 20_000
    assert 0.42 < share < 0.50
    assert degrees.min() >= 1


@pytest.mark.parametrize(("sizes", "words"), [((10, 2, 4), "5 to 45"), ((10, 2, 46), "5 to 45"), ((1, 1, 1), "2 ent")])
def test_a_graph_that_cannot_be_is_refused(sizes: tuple[int, int, int], words: str) -> None:
    with pytest.raises(UserError, match=words):
        synthetic_graph(*sizes)
