"""Support and query: which facts of a step carry messages, and which are to be predicted."""

from __future__ import annotations

import pytest
import torch

from refactorgnn import load_graph
from refactorgnn.data import KnowledgeGraph, graph_from_tables
from refactorgnn.data.queries import QueryIndex
from refactorgnn.training.facts import TrainingFacts
from tests.data.test_graph import table
from tests.training.settings import make, triples_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return load_graph("countries_part_ind")


def pairs(index: QueryIndex) -> set[tuple[int, int]]:
    return {(min(h, t), max(h, t)) for h, _, t in triples_of(index).tolist()}


def test_targets_and_messages_share_no_pair_of_entities() -> None:
    """A held-out border must not come back as the same border told from the other side."""
    graph = load_graph("countries")
    torch.manual_seed(0)
    messages, targets = TrainingFacts(graph, 0.4, CPU, by="pair").split()
    assert not pairs(messages) & pairs(targets)
    together = sorted(triples_of(messages).tolist() + triples_of(targets).tolist())
    assert together == sorted(graph.with_reciprocals(graph.triples("train")).tolist())
    assert 0.35 < targets.num_triples / len(together) < 0.45


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_facts_held_out_one_by_one_leave_others_of_their_entities(fixed_shapes: bool) -> None:
    """As a benchmark's test facts do; a fact goes with its reciprocal, and repeated facts go together."""
    graph = load_graph("countries")
    torch.manual_seed(0)
    messages, targets = TrainingFacts(graph, 0.4, CPU, by="fact", fixed_shapes=fixed_shapes).split()
    if fixed_shapes:
        kept, asked = (index.weights.bool() for index in (messages, targets))
        assert torch.equal(kept, ~asked)
        held_out = {tuple(row) for row in triples_of(targets)[asked].tolist()}
        others = {tuple(row) for row in triples_of(messages)[kept].tolist()}
    else:
        held_out, others = ({tuple(row) for row in triples_of(index).tolist()} for index in (targets, messages))
    count = graph.num_relations
    assert not held_out & others
    assert held_out | others == {tuple(row) for row in graph.with_reciprocals(graph.triples("train")).tolist()}
    assert {(t, (r + count) % (2 * count), h) for h, r, t in held_out} == held_out
    shared = {(min(h, t), max(h, t)) for h, _, t in held_out} & {(min(h, t), max(h, t)) for h, _, t in others}
    assert len(shared) > 100  # borders told from both sides, of which one is held out
    assert 0.35 < len(held_out) / len(held_out | others) < 0.45


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


# Weights instead of new groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_term", ["exact", "paper", "none"])
@pytest.mark.parametrize("scorer", ["distmult", "complex", "transe"])
def test_facts_held_out_by_weights_are_as_if_they_were_not_there(
    graph: KnowledgeGraph, n_term: str, scorer: str
) -> None:
    """The loss and every gradient of three layer-wise steps in float64, for both ways to hold facts out."""
    settings = {"n3": 1e-2, "n3_weighting": "triple", "relation_n3": 1e-2, "features": "signature+random"}
    outcomes = []
    for fixed_shapes in (False, True):
        regime = make(graph, model="refactor", dim=8, layers=3, scorer=scorer, n_term=n_term, alpha=0.3, **settings)
        regime.double()
        regime.facts = TrainingFacts(graph, 0.4, CPU, fixed_shapes=fixed_shapes)
        torch.manual_seed(5)
        regime.begin(1)
        outcome = []
        for step, batch in enumerate(regime.batches(1)):
            regime.zero_grad()
            torch.manual_seed(step)  # the noise of the features
            loss = regime(batch)
            loss.backward()
            torch.manual_seed(step + 10)  # the facts of the next step
            outcome += [loss.detach(), *(parameter.grad for parameter in regime.parameters() if step == 0)]
        outcomes.append([*outcome, regime.states])
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_weights_count_what_groups_hold(graph: KnowledgeGraph) -> None:
    counted = {}
    for fixed_shapes in (False, True):
        facts = TrainingFacts(graph, 0.4, CPU, fixed_shapes=fixed_shapes)
        torch.manual_seed(3)
        counted[fixed_shapes] = [
            (int(part.total), part.occurrences.tolist(), int(part.self_loops.sum()), int(part.counts.sum()))
            for part in facts.split()
        ]
    assert counted[False] == counted[True]


def test_weighted_facts_keep_their_structure(graph: KnowledgeGraph) -> None:
    facts = TrainingFacts(graph, 0.4, CPU, fixed_shapes=True)
    support, targets = facts.split()
    assert support.by_subject is targets.by_subject is facts.known.by_subject
    assert facts.answers_to(targets) is facts.known.answers
    assert torch.equal(support.weights + targets.weights, torch.ones(facts.known.num_triples))
