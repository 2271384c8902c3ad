"""What NBFNet is asked while it learns, and what it must not see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from refactorgnn import UserError
from refactorgnn.data import KnowledgeGraph, load_graph
from refactorgnn.models.rivals.nbfnet import edges_from_subjects
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.negatives import strict_negatives
from refactorgnn.training.processes import Share
from refactorgnn.training.regimes.asking import AskedFacts
from refactorgnn.training.regimes.nbfnet import NBFNetRegime, adversarial_loss
from tests.training.settings import TRAININGS, make


@pytest.fixture(scope="module")
def graph(tiny: Path) -> KnowledgeGraph:
    return load_graph(str(tiny), progress=False)


def edge_set(edges) -> set[tuple[int, int, int]]:
    return set(zip(edges.sources.tolist(), edges.types.tolist(), edges.targets.tolist(), strict=True))


def test_an_epoch_asks_each_fact_once_half_of_them_for_the_head(graph: KnowledgeGraph) -> None:
    regime = make(graph, **TRAININGS["nbfnet"])
    asked = torch.cat([batch.questions for batch in regime.batches(1)])
    is_head = asked[:, 1] >= graph.num_relations
    facts = asked.clone()
    facts[is_head] = asked[is_head][:, [2, 1, 0]] - torch.tensor([0, graph.num_relations, 0])
    assert sorted(facts.tolist()) == sorted(graph.triples("train").tolist())
    assert abs(int(is_head.sum()) - len(asked) / 2) <= len(asked) / 16 / 2 + 1


def test_wrong_answers_are_distinct_and_unknown_and_all_come_equally_often(graph: KnowledgeGraph) -> None:
    known, question = graph.queries("train"), graph.with_reciprocals(graph.triples("train"))[:1]
    torch.manual_seed(0)
    drawn = strict_negatives(known, question.expand(3000, 3), 5)
    answers = set(known.objects_of(question[:, 0], question[:, 1]).columns.tolist())
    assert all(len(set(row)) == 5 for row in drawn.tolist())
    counts = torch.bincount(drawn.flatten(), minlength=24)
    assert {entity for entity, count in enumerate(counts.tolist()) if count == 0} == answers
    mean = 3000 * 5 / (24 - len(answers))
    assert float((counts[counts > 0] - mean).abs().max()) < 5 * mean**0.5
    assert (strict_negatives(known, question, 30) == -1).sum() == 30 - (24 - len(answers))


def asked_of(graph: KnowledgeGraph) -> AskedFacts:
    """A fact and a reciprocal one; the first has two wrong answers that are linked to its subject, the second none."""
    facts, number = graph.triples("train"), graph.num_relations
    questions = torch.stack([facts[0], torch.stack([facts[9, 2], facts[9, 1] + number, facts[9, 0]])])
    edges = edges_from_subjects(graph.queries("train"))
    linked = edges.targets[(edges.sources == facts[0, 0]) & (edges.targets != facts[0, 2])].unique()[:2].tolist()
    assert len(linked) == 2
    return AskedFacts(questions, torch.tensor([linked, [-1, -1]]))


def test_facts_that_are_asked_are_not_in_the_graph_in_either_direction(graph: KnowledgeGraph) -> None:
    regime, batch = make(graph, **TRAININGS["nbfnet"] | {"remove_one_hop": False}), asked_of(graph)
    assert isinstance(regime, NBFNetRegime)
    exact = {tuple(triple) for triple in graph.with_reciprocals(graph.triples("train")[[0, 9]]).tolist()}
    assert edge_set(regime.edges_for(batch)) == edge_set(regime.edges) - exact


def test_facts_between_a_subject_and_all_that_are_asked_about_go_so_that_a_link_tells_nothing(
    graph: KnowledgeGraph,
) -> None:
    """Those of wrong answers too: a model that only ever sees wrong ones linked would learn just that."""
    regime, batch = make(graph, **TRAININGS["nbfnet"] | {"remove_one_hop": True}), asked_of(graph)
    assert isinstance(regime, NBFNetRegime)
    (subject, _, truth), (second, _, second_truth) = batch.questions.tolist()
    asked = [truth, *batch.negatives[0].tolist()]
    pairs = {frozenset((subject, candidate)) for candidate in asked} | {frozenset((second, second_truth))}
    expected = {edge for edge in edge_set(regime.edges) if frozenset((edge[0], edge[2])) not in pairs}
    assert edge_set(regime.edges_for(batch)) == expected
    assert len(expected) <= regime.edges.num_edges - 8


def test_the_loss_is_its_formula_and_leaves_out_what_is_not_there() -> None:
    truth, others = torch.tensor([0.5], dtype=torch.float64), torch.tensor([[1.0, -2.0, 9.0]], dtype=torch.float64)
    is_real = torch.tensor([[True, True, False]])
    one, two = torch.tensor([1.0, -2.0], dtype=torch.float64).div(0.5).softmax(0).tolist()
    log_sigmoid = torch.nn.functional.logsigmoid
    expected = -0.5 * (log_sigmoid(truth) + one * log_sigmoid(-others[0, 0]) + two * log_sigmoid(-others[0, 1]))
    torch.testing.assert_close(adversarial_loss(truth, others, is_real, 0.5), expected[0])
    alone = adversarial_loss(truth, others, torch.zeros_like(is_real), 0.5)
    torch.testing.assert_close(alone, -0.5 * log_sigmoid(truth)[0])


def test_the_losses_of_two_processes_average_to_that_of_one(graph: KnowledgeGraph) -> None:
    regime = make(graph, **TRAININGS["nbfnet"])
    assert isinstance(regime, NBFNetRegime)
    torch.manual_seed(3)
    batch = next(iter(regime.batches(1)))
    whole = regime(batch)
    shares = []
    for rank in range(2):
        regime.share = Share(rank, 2)
        shares.append(regime(batch))
    torch.testing.assert_close(torch.stack(shares).mean(), whole)


@pytest.mark.parametrize("setting", [{"scorer": "complex"}, {"dropout": 0.5}, {"init_scale": 0.7}], ids=str)
def test_settings_without_a_meaning_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(UserError, match="does nothing for nbfnet"):
        TrainConfig.from_dict({"dataset": "x", "model": "nbfnet", **setting})


def test_a_process_without_a_question_takes_part_in_the_gradient(tiny: Path) -> None:
    regime = make(load_graph(str(tiny), progress=False), **TRAININGS["nbfnet"] | {"batch_size": 1})
    regime.share = Share(1, 2)
    loss = regime(next(iter(regime.batches(1))))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in regime.model.parameters())
