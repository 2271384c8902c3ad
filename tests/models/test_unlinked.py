"""The member that tells linked entities from others, alone and where only the validation split can weigh it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import UserError
from refactorgnn.models.unlinked import Unlinked
from tests.models.rivals.brute_force import NUM_RELATIONS, random_graph


def test_entities_that_a_fact_links_in_either_direction_score_nothing() -> None:
    graph = random_graph(3)
    subjects = torch.arange(graph.num_entities).repeat_interleave(2 * NUM_RELATIONS)
    relations = torch.arange(2 * NUM_RELATIONS).repeat(graph.num_entities)
    expected = torch.ones(graph.num_entities, graph.num_entities)
    for head, _, tail in graph.triples("train").tolist():
        expected[head, tail] = expected[tail, head] = 0
    assert 0 < expected.mean() < 1
    assert torch.equal(Unlinked(graph.relations).bind(graph).scores(subjects, relations), expected[subjects])


def unlinked_answers(folder: Path) -> Path:
    """Friends of friends: validation and test facts never join two whom a training fact joins."""
    folder.mkdir()
    size = 40
    train = [f"{i}\tknows\t{(i + step) % size}" for i in range(size) for step in (1, 2, 5)]
    others = [f"{i}\tknows\t{(i + step) % size}" for i in range(size) for step in (3, 4)]
    parts = {"train": train, "valid": others[::2], "test": others[1::2]}
    for name, lines in parts.items():
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_an_ensemble_takes_it_where_validation_says_so(tmp_path: Path) -> None:
    """PageRank puts those first who are linked, none of whom is an answer; together with it they come last."""
    graph = unlinked_answers(tmp_path / "friends")
    runs = [
        refactorgnn.train(graph, model=model, out=tmp_path / model, progress=False) for model in ("ppr", "unlinked")
    ]
    alone = refactorgnn.evaluate(runs[0], progress=False).metrics["mrr"]
    together = refactorgnn.ensemble(runs, out=tmp_path / "together", progress=False)
    assert refactorgnn.evaluate(together, progress=False).metrics["mrr"] > 2 * alone
    bound = together.load_model().bind(together.graph)
    best = bound.scores(torch.arange(5), torch.zeros(5, dtype=torch.int64)).topk(10).indices
    known = {(head, tail) for head, _, tail in together.graph.triples("train").tolist()}
    for subject, answers in enumerate(best.tolist()):
        assert not any((subject, answer) in known or (answer, subject) in known for answer in answers)


def test_a_run_has_nothing_learned_and_nothing_to_set(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, model="unlinked", out=tmp_path / "run", progress=False)
    assert run.sidecar["num_parameters"] == 0
    assert not run.load_model().state_dict()
    with pytest.raises(UserError, match=r"setting learning_rate=0\.3 does nothing for unlinked"):
        refactorgnn.train(tiny, model="unlinked", learning_rate=0.3)
