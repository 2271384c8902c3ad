"""A region of entities set apart: disjoint from the rest, connected, and nothing of the test split in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from refactorgnn import UserError, load_graph
from refactorgnn.data import KnowledgeGraph
from refactorgnn.data.carving import carve_pair
from refactorgnn.data.loading import load_folder, save_graph


def named(graph: KnowledgeGraph, *splits: str) -> set[tuple[str, ...]]:
    return {tuple(row.values()) for split in splits for row in graph.named_triples(split).to_pylist()}


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_parts_share_no_entity_and_every_fact_is_one_of_the_graph(share: float) -> None:
    graph = load_graph("countries")
    pair = carve_pair(graph, share, seed=3)
    assert pair.num_shared_entities == 0
    known = named(graph, "train", "valid")
    assert named(pair.train, "train") | named(pair.train, "valid") <= known
    assert named(pair.unseen, "train") | named(pair.unseen, "valid") <= known
    assert not named(pair.unseen, "train") & named(pair.unseen, "valid")
    assert not named(pair.unseen, "valid") & named(graph, "test")
    # About as large as asked for; entities whose facts all cross the border are in neither part.
    assert 0.5 * share < pair.unseen.num_entities / graph.num_entities < share + 0.01
    assert set(pair.unseen.relations) <= set(graph.relations)
    valid = len(pair.unseen.triples("valid")) / pair.unseen.num_triples
    assert 0.05 < valid <= 0.15


def test_all_facts_among_the_others_are_kept() -> None:
    graph = load_graph("countries")
    pair = carve_pair(graph, 0.3)
    others = set(pair.train.entities)
    inside = {fact for fact in named(graph, "train") if fact[0] in others and fact[2] in others}
    assert named(pair.train, "train") == inside


def test_the_seed_makes_the_region() -> None:
    graph = load_graph("countries_part")
    one, same, other = (carve_pair(graph, 0.3, seed).unseen for seed in (1, 1, 2))
    assert list(one.entities) == list(same.entities) != list(other.entities)
    assert torch.equal(one.triples("valid"), same.triples("valid"))


def test_the_test_split_changes_nothing() -> None:
    graph = load_graph("countries_part")
    without = replace(graph, splits={name: graph.splits[name] for name in ("train", "valid")}, _indices={})
    ours, theirs = carve_pair(graph, 0.3), carve_pair(without, 0.3)
    assert named(ours.unseen, "train", "valid") == named(theirs.unseen, "train", "valid")
    assert named(ours.train, "train", "valid") == named(theirs.train, "train", "valid")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_shares_that_leave_nothing_are_refused(share: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        carve_pair(load_graph("countries_part"), share)


def test_both_parts_can_be_written_and_read_again(tmp_path: Path) -> None:
    """Which needs a training fact of every entity and relation."""
    pair = carve_pair(load_graph("countries"), 0.4, seed=1)
    for number, part in enumerate((pair.train, pair.unseen)):
        save_graph(part, tmp_path / str(number), ".parquet")
        again = load_folder(tmp_path / str(number))
        assert named(again, "train", "valid") == named(part, "train", "valid")
