"""Probabilities of facts that nobody asked for: over all questions they add up to the facts that validation holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from refactorgnn import KnowledgeGraph, Predictor
from refactorgnn.models.base import LinkPredictor
from refactorgnn.predict import calibration, open_questions
from refactorgnn.predict.candidates import dense, itself, log_odds
from refactorgnn.predict.open_questions import curve_over_all_questions, heads_to_ask
from refactorgnn.reproduce.synthetic import synthetic_graph

NUM_ENTITIES, NUM_RELATIONS, NUM_VALID = 60, 3, 90


def graph() -> KnowledgeGraph:
    whole = synthetic_graph(NUM_ENTITIES, NUM_RELATIONS, 540)
    facts = whole.triples("train")
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))
    splits = {"train": facts[order[NUM_VALID:]], "valid": facts[order[:NUM_VALID]]}
    return replace(whole, splits=splits, _indices={})


class Knowing(LinkPredictor):
    """Facts score about 3 more than others: it knows much, and not everything."""

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> Knowing:
        self.num_entities, self.device = graph.num_entities, torch.device("cpu")
        self.facts = graph.queries("train", "valid")
        return self

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        noise = torch.randn(self.facts.num_relations, self.num_entities, self.num_entities, generator=generator)
        return noise[relations, subjects] + 3.0 * dense(self.facts.objects_of(subjects, relations))


@pytest.fixture
def predictor() -> Predictor:
    whole = graph()
    return Predictor(Knowing(whole.relations), whole)


def summed(predictor: Predictor, *, typed: bool) -> tuple[float, int]:
    """Over every candidate that is looked at: the probabilities, and how many are true."""
    curve = curve_over_all_questions(predictor, typed=typed)
    assert curve is not None
    total, num_true = 0.0, 0
    for relation, heads in enumerate(heads_to_ask(predictor, typed=typed)):
        relations = torch.full_like(heads, relation)
        known, true = (dense(predictor.graph.queries(name).objects_of(heads, relations)) for name in ("train", "valid"))
        known |= itself(heads, relations, predictor.irreflexive, NUM_ENTITIES)
        counted = ~known & predictor.kinds.masks(relations) if typed else ~known
        odds = log_odds(predictor.bound.scores(heads, relations), known)
        total += float(curve(odds[counted]).sum())
        num_true += int((true & counted).sum())
    return total, num_true


@pytest.mark.parametrize("typed", [False, True])
def test_probabilities_of_all_candidates_add_up_to_the_true_ones(predictor: Predictor, typed: bool) -> None:
    total, num_true = summed(predictor, typed=typed)
    assert num_true == NUM_VALID if not typed else 10 < num_true < NUM_VALID
    assert total == pytest.approx(num_true, abs=2)  # Platt's targets add a count to each side


def test_a_sample_of_questions_stands_for_all(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_questions, "MOST_QUESTIONS", 60)  # of 180 pairs of a head and a relation
    total, num_true = summed(predictor, typed=False)
    assert total == pytest.approx(num_true, rel=0.2)


def test_a_fact_is_less_likely_where_nobody_says_that_an_answer_is_missing(predictor: Predictor) -> None:
    asked = predictor.calibration
    over_all = curve_over_all_questions(predictor, typed=False)
    assert asked is not None
    assert over_all is not None
    odds = torch.linspace(-6, -1, 5)
    assert bool((over_all(odds) < 0.9 * asked.tail(odds)).all())


def test_too_small_a_validation_split_tells_nothing(predictor: Predictor) -> None:
    few = {**predictor.graph.splits, "valid": predictor.graph.triples("valid")[: calibration.FEWEST_TRIPLES - 1]}
    small = Predictor(predictor.model, replace(predictor.graph, splits=few, _indices={}))
    assert curve_over_all_questions(small, typed=False) is None
