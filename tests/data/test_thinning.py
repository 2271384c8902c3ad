"""A thinned graph keeps the share that was asked for, a fact of every entity, and all that is true."""

from __future__ import annotations

import pytest
import torch

from refactorgnn import load_graph
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.thinning import HELD_BACK, thinned


@pytest.fixture(scope="module")
def countries() -> KnowledgeGraph:
    return load_graph("countries", progress=False)


def entities_of(triples: torch.Tensor) -> list[int]:
    return torch.unique(triples[:, [0, 2]]).tolist()


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_facts_are_kept_and_held_back(share: float, countries: KnowledgeGraph) -> None:
    facts, thin = countries.triples("train"), thinned(countries, share)
    kept, rest = thin.triples("train"), thin.triples(HELD_BACK)
    assert len(kept) == round(share * len(facts))
    assert sorted(torch.cat([kept, rest]).tolist()) == sorted(facts.tolist())
    assert entities_of(kept) == entities_of(facts)
    assert sorted(thin.triples().tolist()) == sorted(countries.triples().tolist())  # the filter knows them all
    assert torch.equal(thin.triples("valid"), countries.triples("valid"))


def test_no_entity_is_left_without_facts(countries: KnowledgeGraph) -> None:
    facts, thin = countries.triples("train"), thinned(countries, 0.01)
    kept = thin.triples("train")
    assert entities_of(kept) == entities_of(facts)
    assert 0.01 * len(facts) < len(kept) <= len(entities_of(facts))


def test_seeds_and_the_whole_graph(countries: KnowledgeGraph) -> None:
    assert thinned(countries, 1.0) is countries
    first, again, other = (thinned(countries, 0.5, seed).triples("train") for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # Which facts are kept does not depend on the relation: shares are near 1/2 for the frequent ones.
    for relation, count in enumerate(torch.bincount(countries.triples("train")[:, 1]).tolist()):
        if count > 500:
            share = int((first[:, 1] == relation).sum()) / count
            assert 0.35 < share < 0.65, relation
