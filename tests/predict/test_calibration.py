"""Probabilities: recovered where they are known, measured on what they were not fitted on, kept with the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn import Predictor, Run
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.predict.calibration import FILE, Calibration, fit_calibration
from refactorgnn.predict.candidates import log_odds
from tests.conftest import contents

NUM_ENTITIES, NUM_RELATIONS = 200, 20


class KnownOdds:
    """A model whose scores are ``scale`` times the logits that the facts are drawn from."""

    def __init__(self, logits: Tensor, scale: float) -> None:
        self.logits, self.scale = logits, scale
        self.num_entities, self.device = logits.shape[-1], torch.device("cpu")

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        return self.scale * self.logits[subjects, relations]


@pytest.fixture(scope="module")
def drawn() -> tuple[KnowledgeGraph, Tensor]:
    """One object for each ``(s, r)``, drawn from a softmax over all entities. Head questions are not drawn from one."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(NUM_ENTITIES, 2 * NUM_RELATIONS, NUM_ENTITIES, generator=generator)
    subjects = torch.arange(NUM_ENTITIES).repeat_interleave(NUM_RELATIONS)
    relations = torch.arange(NUM_RELATIONS).repeat(NUM_ENTITIES)
    objects = torch.multinomial(logits[subjects, relations].softmax(1), 1, generator=generator)[:, 0]
    triples = torch.stack([subjects, relations, objects], dim=1)
    names = [Vocabulary([f"{i:03}" for i in range(n)], "x") for n in (NUM_ENTITIES, NUM_RELATIONS)]
    return KnowledgeGraph("drawn", *names, {"train": triples[:0], "valid": triples}), logits


@pytest.mark.parametrize("scale", [1.0, 3.0, 0.5])
def test_known_probabilities_are_recovered_from_scores_of_any_scale(
    drawn: tuple[KnowledgeGraph, Tensor], scale: float
) -> None:
    graph, logits = drawn
    model = KnownOdds(logits, scale)
    fitted = fit_calibration(model, graph)
    assert fitted is not None
    asked = graph.triples("valid")[:500]
    true = logits[asked[:, 0], asked[:, 1]].double().softmax(1)
    odds = log_odds(model.scores(asked[:, 0], asked[:, 1]), torch.zeros(500, NUM_ENTITIES, dtype=torch.bool))
    said = fitted.probabilities(odds, torch.zeros(500, dtype=torch.bool))
    error = float((said - true).abs().amax(1).mean())
    if scale == 1:  # the softmax is right as it is: a = 1, b = 0
        assert fitted.tail.slope == pytest.approx(1, abs=0.06)
        assert fitted.tail.offset == pytest.approx(0, abs=0.12)
        assert error < 0.02
    assert error < 0.1  # the log-odds of a softmax that is too sharp or flat are not quite linear in the true ones
    uncorrected = float((torch.sigmoid(odds) - true).abs().amax(1).mean())
    assert scale == 1 or uncorrected > 1.5 * error
    assert fitted.top_ece < 0.05
    assert fitted.ece < 2e-3
    num_questions, num_facts = graph.queries("valid").num_queries, 2 * len(graph.triples("valid"))
    assert fitted.share_true == pytest.approx(num_facts / num_questions / NUM_ENTITIES, rel=0.02)


def test_a_subject_that_is_no_answer_takes_no_part(drawn: tuple[KnowledgeGraph, Tensor]) -> None:
    """However high it scores: the others have the probabilities that they would have without it."""
    graph, logits = drawn
    itself = torch.arange(NUM_ENTITIES)
    plain, vain = logits.clone(), logits.clone()
    vain[itself, :, itself] = 50.0
    for scores in (plain, vain):
        scores[itself, 0, itself] = scores[itself, NUM_RELATIONS, itself] = 50.0  # a fact says that it may be one here
    loop = {**graph.splits, "train": torch.tensor([[5, 0, 5]])}
    looped = replace(graph, splits=loop, _indices={})
    assert fit_calibration(KnownOdds(vain, 1.0), looped) == fit_calibration(KnownOdds(plain, 1.0), looped)


def test_a_model_without_knowledge_says_the_share_of_facts(drawn: tuple[KnowledgeGraph, Tensor]) -> None:
    graph, logits = drawn
    fitted = fit_calibration(KnownOdds(logits, -1.0), graph)  # the wrong way round
    assert fitted is not None
    assert fitted.tail.slope == 0
    assert float(torch.sigmoid(torch.tensor(fitted.tail.offset))) == pytest.approx(1 / NUM_ENTITIES, rel=0.01)
    assert fitted.brier == pytest.approx(fitted.share_true * (1 - fitted.share_true), rel=0.01)


def test_log_odds_are_those_of_the_softmax_over_what_is_not_known() -> None:
    scores = torch.tensor([[1.0, 2.0, -1.0, 0.5, 200.0]])
    known = torch.tensor([[False, True, False, False, True]])
    p = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64).softmax(0)
    found = log_odds(scores, known)[0]
    assert torch.allclose(found[[0, 2, 3]], torch.log(p / (1 - p)), atol=1e-12)
    among = torch.tensor([1.0, 2.0, -1.0, 0.5], dtype=torch.float64).softmax(0)[1]  # as if it were not known
    assert float(found[1]) == pytest.approx(float(torch.log(among / (1 - among))), abs=1e-12)
    assert float(found[4]) == 40  # and 1 to the last digit
    lone = log_odds(torch.tensor([[3.0, 1.0]]), torch.tensor([[False, True]]))[0]
    assert float(lone[0]) == 40  # nothing else it could be


def test_too_few_facts_give_no_probabilities(tiny_run: Run) -> None:
    predictor = Predictor.load(tiny_run)
    assert predictor.calibration is None
    assert predictor.tails("person 3", "next to", 1)[0].probability is None


@pytest.fixture(scope="module")
def countries_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "countries"
    settings = {"scorer": "complex", "dim": 32, "epochs": 12, "validate_every": 4, "threads": 1}
    return refactorgnn.train("countries", out=out, progress=False, **settings)


def test_held_out_facts_of_a_real_run_come_as_often_as_was_said(countries_run: Run) -> None:
    fitted = Predictor.load(countries_run).calibration
    assert fitted is not None
    assert fitted.brier < 0.95 * fitted.share_true * (1 - fitted.share_true)  # it knows more than the base rate
    assert fitted.ece < 0.4 * fitted.share_true  # always 0 would be wrong by all of it
    assert fitted.top_ece < 0.15
    graph = countries_run.graph
    predictor = Predictor.load(countries_run)
    triples = [tuple(triple) for triple in graph.triples("test").tolist()]
    said = [answer.probability or 0.0 for answer in predictor.score(triples)]  # type: ignore[arg-type]
    wrong = [(h, r, (t * 7919 + 13) % graph.num_entities) for h, r, t in triples]
    drawn = [answer.probability or 0.0 for answer in predictor.score(wrong)]  # type: ignore[arg-type]
    assert sum(said) / len(said) > 20 * sum(drawn) / len(drawn)


def test_the_curves_are_kept_with_the_weights_they_belong_to(countries_run: Run, tmp_path: Path) -> None:
    path = Path(shutil.copytree(countries_run.path, tmp_path / "run"))
    (path / FILE).unlink(missing_ok=True)
    before = contents(path)
    first = Predictor.load(path).calibration
    assert {name: data for name, data in contents(path).items() if name != FILE} == before
    content = json.loads((path / FILE).read_text())
    assert Calibration.from_dict(content["calibration"]) == first
    content["calibration"]["tail"]["offset"] = 123.0
    (path / FILE).write_text(json.dumps(content))
    kept = Predictor.load(path).calibration
    assert kept is not None  # read, not fitted again
    assert kept.tail.offset == 123
    for damaged in (json.dumps(content | {"weights_sha256": "other"}), "{", "[]"):
        (path / FILE).write_text(damaged)
        assert Predictor.load(path).calibration == first
