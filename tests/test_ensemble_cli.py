"""``refactorgnn ensemble`` and the run folder it makes: one model like any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import refactorgnn
from refactorgnn import Run
from refactorgnn.models import Ensemble
from tests.conftest import QUICK, QUICK_OPTIONS, Cli, contents, rows, tiny_triples, without_seconds, write_folder

ASKED = ("--head", "person 1", "--relation", "across")


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs on the tiny graph, of different scorers, widths and kinds; not to be changed."""
    place = tmp_path_factory.mktemp("members")
    kinds: list[dict[str, Any]] = [
        {"scorer": "complex", "dim": 12},
        {"scorer": "rotate", "dim": 8, "init_scale": 0.5},
        {"model": "refactor", "dim": 6, "layers": 2, "draws": 2, "alpha": 0.3},
    ]
    for number, kind in enumerate(kinds):
        settings = {name: value for name, value in QUICK.items() if name != "batch_size"} | kind
        refactorgnn.train(tiny, out=place / str(number), progress=False, **settings)
    return [place / str(number) for number in range(len(kinds))]


@pytest.fixture(scope="module")
def made(trained: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An ensemble of all three with given weights; not to be changed."""
    out = tmp_path_factory.mktemp("ensembles") / "all"
    return refactorgnn.ensemble(trained, out=out, weights=[2, 1, 5], progress=False)


@pytest.fixture
def made_copy(made: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.path, tmp_path / "ensemble"))


def parsed(outcome: Any) -> Any:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


# What it makes ---------------------------------------------------------------------------------------------------


def test_the_saved_ensemble_scores_as_its_members_do(trained: list[Path], made: Run) -> None:
    graph = made.graph
    queries = graph.queries("test")
    question = queries.subjects, queries.relations
    each = [Run.open(path).load_model().bind(graph).scores(*question) for path in trained]
    expected = (2 * each[0] + each[1] + 5 * each[2]) / 8
    model = Run.open(made.path).load_model()
    assert isinstance(model, Ensemble)
    torch.testing.assert_close(model.bind(graph).scores(*question), expected, rtol=1e-5, atol=1e-6)
    assert set(contents(made.path)) == {"config.yaml", "model.json", "model.safetensors"} | {
        f"graph/{split}.parquet" for split in graph.splits
    }


def test_it_needs_nothing_but_its_folder(cli: Cli, trained: list[Path], tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(path, tmp_path / path.name)) for path in trained]
    assert cli("ensemble", *copies, "--out", tmp_path / "out", "--weights", "1,2,3").code == 0
    before = parsed(cli("evaluate", tmp_path / "out", "--json"))
    for copy in copies:
        shutil.rmtree(copy)
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    after = parsed(cli("evaluate", moved, "--json"))
    assert without_seconds([after]) == without_seconds([before])
    assert len(parsed(cli("predict", moved, *ASKED, "-k", "3", "--json"))) == 3


def test_members_and_weights_are_chosen_on_validation(cli: Cli, trained: list[Path], tmp_path: Path) -> None:
    summary = parsed(cli("ensemble", *trained, "--out", tmp_path / "out", "--json"))
    alone = [Run.open(path).sidecar["valid_mrr"] for path in trained]
    assert [about["valid_mrr"] for about in summary["candidates"]] == pytest.approx(alone, abs=1e-6)
    assert [about["run"] for about in summary["candidates"]] == list(map(str, trained))
    assert summary["valid_mrr"] >= max(alone) - 1e-6
    assert summary["steps"][-1]["weights"] == [about["weight"] for about in summary["candidates"]]
    measured = refactorgnn.evaluate(tmp_path / "out", split="valid", confidence=False)
    assert measured.metrics["mrr"] == pytest.approx(summary["valid_mrr"], abs=1e-6)
    kept = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())["members"]
    assert [member["weight"] for member in kept] == [weight for weight in summary["steps"][-1]["weights"] if weight]
    assert kept[0]["settings"]["dataset"]
    again = parsed(cli("ensemble", *trained, "--out", tmp_path / "again", "--json"))
    assert again["steps"] == summary["steps"]
    assert contents(tmp_path / "again")["model.safetensors"] == contents(tmp_path / "out")["model.safetensors"]


def test_without_json_it_says_what_it_chose_and_what_comes_next(cli: Cli, trained: list[Path], tmp_path: Path) -> None:
    outcome = cli("ensemble", *trained, "--out", tmp_path / "out", "--rounds", "1")
    assert outcome.code == 0
    for fragment in ("choice on validation", "ensemble on tiny", "rotate", str(trained[0])):
        assert fragment in outcome.out
    assert outcome.err.endswith(f"Next: refactorgnn evaluate {tmp_path / 'out'}\n")


def test_a_record_names_the_members(cli: Cli, made: Run, tmp_path: Path) -> None:
    assert cli("evaluate", made.path, "--json", "--record", tmp_path / "record.json").code == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert [member["settings"]["scorer"] for member in record["config"]["members"]] == ["complex", "rotate", "distmult"]
    assert record["training"]["valid_mrr"] == made.sidecar["valid_mrr"]
    assert {"commit", "command", "hardware"} <= set(record["training"]["trained_with"])


def test_unseen_entities(cli: Cli, tmp_path: Path) -> None:
    settings = {"dim": 8, "epochs": 1, "validate_every": 1}
    inductive = [
        refactorgnn.train(
            "countries_part", out=tmp_path / name, model="refactor", layers=2, features=name, progress=False, **settings
        ).path
        for name in ("random", "signature")
    ]
    lookup = refactorgnn.train("countries_part", out=tmp_path / "lookup", progress=False, **settings).path
    assert cli("ensemble", *inductive, "--out", tmp_path / "both", "--weights", "1,1").code == 0
    result = parsed(cli("evaluate", tmp_path / "both", "--graph", "countries_part_ind", "--json"))
    assert result["protocol"]["graph"] == "countries_part_ind"
    assert 0 < result["mrr"] < 1
    assert cli("ensemble", *inductive, lookup, "--out", tmp_path / "all", "--weights", "1,1,1").code == 0
    refusal = cli("evaluate", tmp_path / "all", "--graph", "countries_part_ind")
    refusal.refused("a lookup model knows only the entities it was trained on", "countries_part_ind")


# What it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--weights", "1,2"], ["2 weights", "3 members"]),
        (["--weights", "1,2,x"], ["--weights 1,2,x cannot be read", "such as 1,0.5"]),
        (["--weights", "1,0,1"], ["weight 0 cannot be used", "leave the member out"]),
        (["--weights", "1,nan,1"], ["weight nan cannot be used"]),
        (["--weights", "1,1,1", "--rounds", "3"], ["either given or searched for"]),
        (["--rounds", "0"], ["rounds=0"]),
        (["--device", "quantum"], ["device 'quantum'"]),
    ],
)
def test_options_that_make_no_sense(
    options: list[str], fragments: list[str], cli: Cli, trained: list[Path], tmp_path: Path
) -> None:
    cli("ensemble", *trained, "--out", tmp_path / "out", *options).refused(*fragments)
    assert not (tmp_path / "out").exists()


def test_runs_that_make_no_ensemble(cli: Cli, trained: list[Path], made: Run, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    cli("ensemble", trained[0], *out).refused("at least two runs")
    cli("ensemble", trained[0], trained[1], trained[0], *out).refused(trained[0], "given twice")
    cli("ensemble", trained[0], made.path, *out).refused(made.path, "is an ensemble itself")
    cli("ensemble", trained[0], tmp_path / "nowhere", *out).refused(tmp_path / "nowhere", "no such run folder")
    cli("ensemble", *trained).refused("--out")
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_taken(cli: Cli, trained: list[Path], made: Run) -> None:
    before = contents(made.path)
    outcome = cli("ensemble", *trained, "--out", made.path)
    outcome.refused(made.path, "there is a run here already", "choose another --out")
    assert "--resume" not in outcome.err
    assert contents(made.path) == before


def _other_graph(change: Callable[[str], str], tiny: Path, place: Path) -> Path:
    files = {split: change(rows(triples)) for split, triples in tiny_triples().items()}
    folder = write_folder(place / "other", **files)
    return refactorgnn.train(folder, out=place / "other-run", progress=False, **QUICK | {"epochs": 1}).path


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (lambda text: text.replace("across", "behind"), "their relations differ"),
        (lambda text: text.replace("person", "people"), "their entities differ"),
        (lambda text: text.replace("person 2\tacross\tperson 9\n", ""), "the triples of"),
    ],
    ids=["relations", "entities", "triples"],
)
def test_members_of_other_graphs(
    change: Callable[[str], str], fragment: str, cli: Cli, tiny: Path, trained: list[Path], tmp_path: Path
) -> None:
    other = _other_graph(change, tiny, tmp_path)
    refusal = cli("ensemble", trained[0], other, "--out", tmp_path / "out")
    refusal.refused(trained[0], other, "different graphs", fragment, "the same folder")


def test_members_that_split_one_file_by_their_seeds(cli: Cli, tmp_path: Path) -> None:
    """What one was validated on, the other was trained on: the choice would reward having seen the answers."""
    everything = [triple for triples in tiny_triples().values() for triple in triples]
    (tmp_path / "mine.tsv").write_text(rows(everything), encoding="utf-8")
    for seed in (0, 1):
        settings = QUICK | {"epochs": 1, "seed": seed}
        refactorgnn.train(tmp_path / "mine.tsv", out=tmp_path / str(seed), progress=False, **settings)
    refusal = cli("ensemble", tmp_path / "0", tmp_path / "1", "--out", tmp_path / "out")
    refusal.refused(tmp_path / "0", tmp_path / "1", "differ")


# Damage ----------------------------------------------------------------------------------------------------------


def test_damaged_or_missing_weights(cli: Cli, made_copy: Path) -> None:
    weights = made_copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    cli("evaluate", made_copy).refused(weights, "the file is damaged or cut short")
    weights.unlink()
    cli("predict", made_copy, *ASKED).refused(weights, "the weights are missing")


def test_a_member_without_weights_is_named(cli: Cli, trained: list[Path], tmp_path: Path) -> None:
    unfinished = Path(shutil.copytree(trained[1], tmp_path / "unfinished"))
    (unfinished / "model.safetensors").unlink()
    refusal = cli("ensemble", trained[0], unfinished, "--out", tmp_path / "out")
    refusal.refused(unfinished / "model.safetensors", "the weights are missing")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda c: c["members"][1].update(weight=3.0), ["weights is [0.25, 3.0, 0.625]", "with [0.25, 0.125, 0.625]"]),
        (lambda c: c["members"][1]["settings"].update(dim=10), ["dim is 28", "with 26"]),
        (lambda c: c["members"].pop(), ["scorer is 'complex+rotate'", "with 'complex+rotate+distmult'"]),
        (lambda c: c["members"][1].update(weight=-1), ["members.1.weight", "greater than 0"]),
        (lambda c: c["members"][1].update(weigth=1), ["members.1.weigth"]),
        (lambda c: c["members"][2]["settings"].update(dimm=8), ["members.2.settings", "did you mean 'dim'"]),
        (lambda c: c["members"][2].pop("settings"), ["members.2.settings"]),
        (lambda c: c.update(members=[]), ["members"]),
        (lambda c: c.pop("members"), ["members"]),
    ],
)  # fmt: skip
def test_changed_settings(
    change: Callable[[dict[str, Any]], object], fragments: list[str], cli: Cli, made_copy: Path
) -> None:
    path = made_copy / "config.yaml"
    config = yaml.safe_load(path.read_text())
    change(config)
    path.write_text(yaml.safe_dump(config))
    cli("evaluate", made_copy).refused(*fragments)


def test_where_and_how_a_member_was_computed_may_change(cli: Cli, made: Run, made_copy: Path) -> None:
    path = made_copy / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for member in config["members"]:
        member["settings"].update(accelerator="cuda", devices="2", memory_budget_mb=1, dataset="elsewhere")
    path.write_text(yaml.safe_dump(config))
    assert refactorgnn.evaluate(made_copy).metrics == pytest.approx(refactorgnn.evaluate(made).metrics)


def test_an_ensemble_cannot_be_trained_on(cli: Cli, tiny: Path, made_copy: Path) -> None:
    resumed = cli("train", tiny, "--out", made_copy, "--resume", *QUICK_OPTIONS)
    resumed.refused(made_copy, "is an ensemble, which is not trained")


def test_a_run_of_another_kind_cannot_be_resumed(cli: Cli, tiny: Path, run_copy: Path) -> None:
    resumed = cli("train", tiny, "--model", "refactor", "--out", run_copy, "--resume")
    resumed.refused(run_copy, "model was 'lookup'")


def test_a_full_disk_leaves_nothing(cli: Cli, trained: list[Path], small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("12k")
    cli("ensemble", *trained, "--out", disk / "out", "--weights", "1,1,1").refused(disk / "out", "cannot be written")
    assert list(disk.iterdir()) == []
