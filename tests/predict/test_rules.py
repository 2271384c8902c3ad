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
    expected = loaded.rules(0, 3)
    assert [one["text"] for one in shown] == [rule.in_words(0, graph.relations) for rule in expected]
    assert [one["confidence"] for one in shown] == [rule.confidence for rule in expected]
    assert all(one["support"] is None and one["relation"] == relation for one in shown)
    of_all = refactorgnn.rules(run.path, k=5)
    assert [one.confidence for one in of_all] == sorted((one.confidence for one in of_all), reverse=True)
    assert of_all[0].confidence == max(loaded.rules(number, 1)[0].confidence for number in range(graph.num_relations))
    assert relation in cli("rules", run.path, "--relation", relation).out
