"""The layout of the Hugging Face Hub: the same scores bit for bit from a plain folder, and a card that is true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

import refactorgnn
from refactorgnn import Run, UserError
from refactorgnn.predict.predictor import Question
from tests.conftest import QUICK, Cli, contents

KINDS: dict[str, dict[str, Any]] = {
    "lookup": {"scorer": "distmult"},
    "refactor": {"model": "refactor", "layers": 2, "features": "signature+random", "alpha": 0.3, "draws": 2},
    "infinite": {"model": "refactor", "layers": "inf", "features": "random", "alpha": 0.3},
}
ASKED = [Question("person 1", "across", None), Question(None, "next to", "person 4")]


@pytest.fixture(scope="module")
def runs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A lookup, ReFactor GNNs of finite and infinite depth, and an ensemble; not to be changed."""
    place = tmp_path_factory.mktemp("runs")
    quick = {name: value for name, value in QUICK.items() if name != "batch_size"}
    made = {
        name: refactorgnn.train(tiny, out=place / name, progress=False, **quick, **settings)
        for name, settings in KINDS.items()
    }
    made["ensemble"] = refactorgnn.ensemble(
        [made["lookup"].path, made["refactor"].path], weights=[1.0, 0.5], out=place / "ensemble", progress=False
    )
    return made


@pytest.mark.parametrize("kind", [*KINDS, "ensemble"])
def test_the_scores_are_bit_identical(runs: dict[str, Run], kind: str, tmp_path: Path) -> None:
    run = runs[kind]
    folder = refactorgnn.save_pretrained(run, tmp_path / "model")
    before, loaded = refactorgnn.Predictor.load(run), refactorgnn.from_pretrained(folder)
    subjects = torch.arange(run.graph.num_entities).repeat(2 * run.graph.num_relations)
    relations = torch.arange(2 * run.graph.num_relations).repeat_interleave(run.graph.num_entities)
    assert torch.equal(before.bound.scores(subjects, relations), loaded.bound.scores(subjects, relations))
    assert loaded.answer(ASKED) == before.answer(ASKED)  # with probabilities and what is known
    assert loaded.graph.name == run.graph.name


def test_the_folder_needs_neither_the_run_nor_a_path(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **QUICK)
    expected = refactorgnn.Predictor.load(run).answer(ASKED)
    folder = refactorgnn.save_pretrained(run, tmp_path / "model", measure=False)
    for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    moved = folder.rename(tmp_path / "elsewhere")
    assert refactorgnn.from_pretrained(moved).answer(ASKED) == expected
    said = b"".join(content for name, content in contents(moved).items() if not name.endswith(".parquet"))
    assert str(tmp_path).encode() not in said
    assert str(tiny).encode() not in said


def test_what_is_in_it(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["refactor"]
    folder = refactorgnn.save_pretrained(run, tmp_path / "model")
    found = contents(folder)
    expected = {"README.md", "config.json", "model.safetensors", "entities.txt", "relations.txt"}
    assert expected <= set(found)
    assert {"graph/train.parquet", "graph/valid.parquet", "graph/test.parquet"} <= set(found)
    assert found["model.safetensors"] == run.weights_path.read_bytes()
    names = [json.loads(line) for line in found["entities.txt"].decode().splitlines()]
    assert names == list(run.graph.entities)
    assert json.loads(found["config.json"])["settings"]["layers"] == 2


def card_of(folder: Path) -> tuple[dict[str, Any], str]:
    _, front, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


def test_the_card_has_the_metrics_of_the_test_split(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["lookup"]
    folder = refactorgnn.save_pretrained(run, tmp_path / "a model", licence="mit")
    front, body = card_of(folder)
    measured = refactorgnn.evaluate(run, confidence=False).metrics
    (result,) = front["model-index"][0]["results"]
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {
        name: measured[name] for name in ("mrr", "hits@1", "hits@3", "hits@10")
    }
    assert result["dataset"] == {"type": run.graph.name, "name": run.graph.name, "split": "test"}
    assert (front["license"], front["library_name"], front["pipeline_tag"]) == ("mit", "refactorgnn", "graph-ml")
    assert f"| {measured['mrr']:.4f} |" in body
    for name in ("config.json", "model.safetensors", "entities.txt", "graph/", "from_pretrained"):
        assert name in body


def test_unmeasured_cards_say_what_the_training_found(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["lookup"]
    front, _ = card_of(refactorgnn.save_pretrained(run, tmp_path / "model", measure=False))
    (result,) = front["model-index"][0]["results"]
    assert [metric["value"] for metric in result["metrics"]] == [run.sidecar["valid_mrr"]]
    assert result["dataset"]["split"] == "valid"
    assert "license" not in front


def test_the_hub_reads_the_card(runs: dict[str, Run], tmp_path: Path) -> None:
    cards = pytest.importorskip("huggingface_hub", reason="the extra hub").ModelCard
    folder = refactorgnn.save_pretrained(runs["ensemble"], tmp_path / "model")
    card = cards.load(folder / "README.md")
    assert [result.metric_type for result in card.data.eval_results] == ["mrr", "hits@1", "hits@3", "hits@10"]


def test_commands_open_it_like_a_run(runs: dict[str, Run], tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "model"
    assert cli("export", "huggingface", runs["refactor"].path, "--out", folder, "--no-measure").code == 0
    asked = ("--head", "person 1", "--relation", "across", "--json")
    assert cli("predict", folder, *asked).out == cli("predict", runs["refactor"].path, *asked).out
    assert cli("evaluate", folder, "--json").code == 0


def test_bad_input(runs: dict[str, Run], tmp_path: Path, cli: Cli) -> None:
    run = runs["lookup"].path
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("keep me")
    cli("export", "huggingface", run, "--out", full).refused(full, "nothing is overwritten")
    assert contents(full) == {"mine.txt": b"keep me"}
    cli("export", "huggingface", tmp_path / "none", "--out", tmp_path / "new").refused("no such run folder")
    assert not (tmp_path / "new").exists()
    cli("export", "huggingface", run, "--out", tmp_path / "new", "--licence", "").refused("licence")
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError, match="not an exported model"):
        refactorgnn.from_pretrained(run)
    with pytest.raises(UserError, match="there is no such folder"):
        refactorgnn.from_pretrained(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["{", "[]", '{"settings": {}, "run": {}}', '{"model_type": "bert"}'])
def test_a_foreign_config_is_refused(runs: dict[str, Run], tmp_path: Path, content: str, cli: Cli) -> None:
    folder = refactorgnn.save_pretrained(runs["lookup"], tmp_path / "model", measure=False)
    (folder / "config.json").write_text(content)
    cli("predict", folder, "--head", "person 1", "--relation", "across").refused(folder / "config.json")


def test_weights_of_another_model_are_refused(runs: dict[str, Run], tmp_path: Path) -> None:
    folder = refactorgnn.save_pretrained(runs["lookup"], tmp_path / "model", measure=False)
    (folder / "model.safetensors").write_bytes(runs["refactor"].weights_path.read_bytes())
    with pytest.raises(UserError, match="do not belong"):
        refactorgnn.from_pretrained(folder)


def test_names_on_the_hub_are_downloaded(runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = refactorgnn.save_pretrained(runs["lookup"], tmp_path / "model", measure=False)
    asked: list[str] = []

    def snapshot_download(name: str) -> str:
        asked.append(name)
        if name == "someone/none":
            raise OSError("404 Client Error.\nand much more")
        return str(folder)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert len(refactorgnn.from_pretrained("someone/countries").tails("person 1", "across", k=3)) == 3
    with pytest.raises(UserError, match=r"could not be downloaded \(404 Client Error\)"):
        refactorgnn.from_pretrained("someone/none")
    assert asked == ["someone/countries", "someone/none"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"refactorgnn\[hub\]"):
        refactorgnn.from_pretrained("someone/countries")
