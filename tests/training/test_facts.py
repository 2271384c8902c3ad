"""Support and query: which facts of a step carry messages, and which are to be predicted."""

from __future__ import annotations

import torch

from refactorgnn import load_graph
from refactorgnn.data import graph_from_tables
from refactorgnn.data.queries import QueryIndex
from refactorgnn.training.facts import TrainingFacts
from tests.data.test_graph import table
from tests.training.settings import triples_of

CPU = torch.device("cpu")


def pairs(index: QueryIndex) -> set[tuple[int, int]]:
    return {(min(h, t), max(h, t)) for h, _, t in triples_of(index).tolist()}


def test_targets_and_messages_share_no_pair_of_entities() -> None:
    """A held-out border must not come back as the same border told from the other side."""
    graph = load_graph("countries")
    torch.manual_seed(0)
    messages, targets = TrainingFacts(graph, 0.4, CPU).split()
    assert not pairs(messages) & pairs(targets)
    together = sorted(triples_of(messages).tolist() + triples_of(targets).tolist())
    assert together == sorted(graph.with_reciprocals(graph.triples("train")).tolist())
    assert 0.35 < targets.num_triples / len(together) < 0.45


def test_each_split_is_drawn_anew_from_the_seed() -> None:
    facts = TrainingFacts(load_graph("countries_part_ind"), 0.3, CPU)
    torch.manual_seed(5)
    first, second = facts.split()[1], facts.split()[1]
    torch.manual_seed(5)
    again = facts.split()[1]
    assert torch.equal(triples_of(first), triples_of(again))
    assert pairs(first) != pairs(second)


def test_without_a_mask_all_facts_are_both_as_in_the_paper() -> None:
    graph = load_graph("countries_part_ind")
    messages, targets = TrainingFacts(graph, 0, CPU).split()
    assert messages is targets
    assert messages.num_triples == 2 * len(graph.triples("train"))


def test_there_is_always_something_to_predict() -> None:
    graph = graph_from_tables("toy", {"train": table(("a", "r", "b"), ("b", "r", "c"))})
    facts = TrainingFacts(graph, 1e-6, CPU)
    for _ in range(5):
        messages, targets = facts.split()
        assert messages.num_triples == targets.num_triples == 2
