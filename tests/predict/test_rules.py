"""Rules that models have learned by attention, in words; those that are mined are tested with RuleN."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import refactorgnn
from refactorgnn.models.rivals.rules_protocol import LearnedRules
from tests.conftest import Cli


@pytest.mark.parametrize("model", ["drum", "neural-lp"])
def test_the_rules_of_a_run_are_those_of_its_model(model: str, tiny: Path, tmp_path: Path, cli: Cli) -> None:
    settings = {"dim": 8, "rule_length": 2, "epochs": 1}
    run = refactorgnn.train(tiny, out=tmp_path / "run", model=model, progress=False, **settings)
    loaded, graph = run.load_model(), run.graph
    assert isinstance(loaded, LearnedRules)
    relation = graph.relations[0]
    shown = json.loads(cli("rules", run.path, "--relation", relation, "-k", "3", "--json").out)
    expected = [rule for rule in loaded.rules(0, 4) if rule.body != (0,)][:3]  # a relation is no reason for itself
    assert [one["text"] for one in shown] == [rule.in_words(0, graph.relations) for rule in expected]
    assert [one["confidence"] for one in shown] == [rule.confidence for rule in expected]
    assert all(one["support"] is None and one["relation"] == relation for one in shown)
    of_all = refactorgnn.rules(run.path, k=5)
    assert [one.confidence for one in of_all] == sorted((one.confidence for one in of_all), reverse=True)
    best = [rule.confidence for n in range(graph.num_relations) for rule in loaded.rules(n, 2) if rule.body != (n,)]
    assert of_all[0].confidence == max(best)
    assert relation in cli("rules", run.path, "--relation", relation).out
    every = {rule.text for rule in refactorgnn.rules(run.path, relation=relation, k=1000)}
    assert len(every) > 3
    assert f"{relation}(X, Y) ← {relation}(X, Y)" not in every
