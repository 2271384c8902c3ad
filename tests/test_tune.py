"""``refactorgnn tune``: what it tries, what it finds, and that it never looks at the test split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import refactorgnn
from refactorgnn import Run, UserError
from refactorgnn.data.carving import carve_pair
from refactorgnn.evaluation import protocols, ranking
from refactorgnn.locks import hold_folder
from refactorgnn.training import trials, validation
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.config_files import ConfigFile
from refactorgnn.training.loop import fit
from refactorgnn.training.search import Clock
from refactorgnn.training.search_records import SearchResult
from refactorgnn.training.trials import is_below_median
from tests.conftest import Cli, rows, tiny_triples, write_folder

pytest.importorskip("optuna", reason="a search needs the extra `tune`")
# Settings under which a trial takes a tenth of a second.
QUICK: dict[str, Any] = {"dim": 8, "epochs": 2, "validate_every": 1, "batch_size": 2048, "threads": 1}
OPTIONS = tuple(part for name, value in QUICK.items() for part in (f"--{name.replace('_', '-')}", str(value)))
SPACE = "learning_rate: {low: 0.01, high: 1, log: true}\nscorer: [distmult, complex]\n"


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking git for the commit takes longer than a trial here."""
    monkeypatch.setattr("refactorgnn.provenance.commit", lambda: None)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    return written(tmp_path / "space.yaml", SPACE)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def search(space: Path, out: Path, dataset: str | Path = "countries_part", **changes: Any) -> SearchResult:
    return refactorgnn.tune(dataset, space=space, out=out, progress=False, **{**QUICK, **changes})


def lines(folder: Path, *without: str) -> list[dict[str, Any]]:
    """The lines of ``trials.jsonl``, but for what was timed."""
    found = [json.loads(line) for line in (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in found:
        for part in (line, *line["runs"]):
            part.pop("seconds")
        for name in without:
            line.pop(name)
    return found


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def without_test(folder: Path) -> Path:
    splits = {split: rows(triples) for split, triples in tiny_triples().items() if split != "test"}
    return write_folder(folder, **splits)


# What it finds ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_command_gives_the_same_trials(space: Path, tmp_path: Path) -> None:
    """Twelve trials: the first ten of TPE are random, the others follow from them."""
    one = search(space, tmp_path / "one", trials=12, epochs=1)
    search(space, tmp_path / "two", trials=12, epochs=1)
    assert lines(tmp_path / "one") == lines(tmp_path / "two")
    assert len({json.dumps(trial.settings) for trial in one.trials}) == 12
    assert names(tmp_path / "one") == {"journal.jsonl", "trials.jsonl", "best.yaml", "importance.json"}
    importance = json.loads((tmp_path / "one" / "importance.json").read_text())
    assert set(importance["importances"]) == {"learning_rate", "scorer"}
    other = search(space, tmp_path / "three", trials=2, seed=1)
    assert other.trials[0].settings != one.trials[0].settings


def test_a_figure_is_that_of_a_training_without_the_test_split(tiny: Path, space: Path, tmp_path: Path) -> None:
    found = search(space, tmp_path / "out", tiny, trials=3, seeds=2, epochs=3)
    assert found.best.valid_mrr == max(trial.valid_mrr or 0 for trial in found.trials)
    for trial in found.trials:
        runs = [
            refactorgnn.train(
                without_test(tmp_path / "data"),
                out=tmp_path / f"{trial.number}-{seed}",
                progress=False,
                **{**QUICK, "epochs": 3, **trial.settings, "seed": seed},
            )
            for seed in (0, 1)
        ]
        assert [run["valid_mrr"] for run in trial.runs] == [run.sidecar["valid_mrr"] for run in runs]
        assert [run["best_epoch"] for run in trial.runs] == [run.sidecar["best_epoch"] for run in runs]
        assert trial.valid_mrr == pytest.approx(sum(run.sidecar["valid_mrr"] for run in runs) / 2)
        assert trial.best_epoch == max(run.sidecar["best_epoch"] for run in runs)


def test_the_best_settings_are_ready_to_train_with(cli: Cli, space: Path, tmp_path: Path) -> None:
    base = written(tmp_path / "base.yaml", "dataset: countries_part\nn3: 0.001\ndim: 16\nclip: 3.0\n")
    out = tmp_path / "out"
    outcome = cli(
        "tune", "--config", base, *OPTIONS, "--space", space, "--trials", "3", "--seconds", "500", "--out", out
    )
    assert outcome.code == 0, outcome.err
    assert "best 3 of 3 trials (3 complete)" in outcome.out
    assert "learning_rate" in outcome.out
    assert outcome.err.endswith(f"Next: refactorgnn train --config {out / 'best.yaml'}\n")
    best = max(lines(out), key=lambda line: line["valid_mrr"])
    content = yaml.safe_load((out / "best.yaml").read_text(encoding="utf-8"))
    description = content.pop("description")
    assert content == {"dataset": "countries_part", "n3": 0.001, "clip": 3.0, **QUICK, **best["settings"]}
    for part in ("3 trials", "on countries_part", "500 seconds", f"MRR {best['valid_mrr']:.4f}", "1 seed,"):
        assert part in description
    assert ConfigFile.read(out / "best.yaml").train_config({}).clip == 3.0
    assert cli("train", "--config", out / "best.yaml", "--out", tmp_path / "run").code == 0


def test_an_option_is_not_searched_and_a_file_gives_way(cli: Cli, tmp_path: Path) -> None:
    base = written(tmp_path / "base.yaml", "dataset: countries_part\nn3: 0.001\nscorer: complex\n")
    space = written(tmp_path / "both.yaml", "n3: [0.01, 0.1]\nscorer: [distmult, cp]\n")
    out = tmp_path / "out"
    arguments = ("--config", base, *OPTIONS, "--n3", "0.5", "--space", space, "--grid", "--out", out)
    assert cli("tune", *arguments).code == 0
    assert [line["settings"] for line in lines(out)] == [{"scorer": "distmult"}, {"scorer": "cp"}]
    assert yaml.safe_load((out / "best.yaml").read_text(encoding="utf-8"))["n3"] == 0.5
    cli("tune", *arguments, "--scorer", "cp").refused("both.yaml", "each of its settings is given a value beside it")


def test_json(cli: Cli, space: Path, tmp_path: Path) -> None:
    arguments = ("tune", "countries_part", *OPTIONS, "--space", space, "--trials", "2", "--out", tmp_path / "out")
    summary = json.loads(cli(*arguments, "--json").out)
    best = max(lines(tmp_path / "out"), key=lambda line: line["valid_mrr"])
    assert {name: summary[name] for name in ("number", "settings", "valid_mrr", "best_epoch", "state")} == {
        name: best[name] for name in ("number", "settings", "valid_mrr", "best_epoch", "state")
    }
    assert summary["trials"] == {"complete": 2}
    assert summary["best"] == str(tmp_path / "out" / "best.yaml")


def test_a_grid_is_exhaustive_and_in_order(cli: Cli, tmp_path: Path) -> None:
    space = written(tmp_path / "space.yaml", "dropout: [0, 0.5]\nscorer: [distmult, complex, cp]")
    found = search(space, tmp_path / "out", grid=True)
    assert [tuple(trial.settings.values()) for trial in found.trials] == [
        (0.0, "distmult"), (0.0, "complex"), (0.0, "cp"), (0.5, "distmult"), (0.5, "complex"), (0.5, "cp"),
    ]  # fmt: skip
    again = search(space, tmp_path / "out", grid=True)
    assert again.trials == found.trials
    arguments = ("tune", "countries_part", "--space", space, "--out", tmp_path / "other", "--grid")
    cli(*arguments, "--trials", "3").refused("every combination", "trials=3")
    cli(*arguments[:2], "--space", written(tmp_path / "range.yaml", SPACE), *arguments[4:]).refused(
        tmp_path / "range.yaml", "setting learning_rate has a range"
    )
    assert not (tmp_path / "other").exists()


# The test split --------------------------------------------------------------------------------------------------


def test_nothing_depends_on_the_test_split(
    tiny: Path, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With test triples, without them, and with others that name an entity of their own: the same search."""
    asked = []

    def watched(predictor: Any, graph: Any, triples: torch.Tensor, **options: Any) -> Any:
        asked.append((torch.equal(triples, graph.triples("valid")), tuple(graph.splits)))
        return ranking.rank_triples(predictor, graph, triples, **options)

    monkeypatch.setattr(validation, "rank_triples", watched)
    splits = {split: rows(triples) for split, triples in tiny_triples().items()}
    stranger = write_folder(tmp_path / "stranger", **{**splits, "test": "nobody\tacross\tperson 1\n"})
    for number, dataset in enumerate((tiny, without_test(tmp_path / "without"), stranger)):
        search(space, tmp_path / str(number), dataset, trials=3)
    assert lines(tmp_path / "0") == lines(tmp_path / "1") == lines(tmp_path / "2")
    assert set(asked) == {(True, ("train", "valid"))}


# Going on --------------------------------------------------------------------------------------------------------


def interrupt_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the program in the n-th validation from now on."""
    left = iter(range(number - 1))
    original = trials._Watch.__call__

    def call(self: Any, epoch: int, mrr: float) -> None:
        original(self, epoch, mrr)
        if next(left, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(trials._Watch, "__call__", call)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--seeds", "2")], ids=["one seed", "two seeds"])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(
    options: tuple[str, ...], cli: Cli, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("tune", "countries_part", *OPTIONS, "--epochs", "4", "--space", space, "--trials", "4", *options)
    assert cli(*arguments, "--out", tmp_path / "whole").code == 0
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        interrupt_at(11, patch)  # the third trial of one seed, or the second seed of the second trial
        stopped = cli(*arguments, "--out", out)
    assert stopped.code == 130
    assert "the same command goes on where this one was" in stopped.err
    assert (out / "work").is_dir()
    with (out / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write('{"op_code": 5, "worker')  # as a kill may leave it
    assert cli(*arguments, "--out", out).code == 0
    assert lines(out) == lines(tmp_path / "whole")
    assert names(out) == {"journal.jsonl", "trials.jsonl", "best.yaml"}


def test_more_trials_continue_a_search_that_was_done(space: Path, tmp_path: Path) -> None:
    search(space, tmp_path / "whole", trials=5)
    search(space, tmp_path / "out", trials=2)
    first = search(space, tmp_path / "out", trials=2)  # nothing left to do
    assert len(first.trials) == 2
    search(space, tmp_path / "out", trials=5)
    assert lines(tmp_path / "out") == lines(tmp_path / "whole")


def test_the_journal_is_plain_json(space: Path, tmp_path: Path) -> None:
    search(space, tmp_path / "out", trials=2)
    for line in (tmp_path / "out" / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        assert isinstance(json.loads(line), dict)


def test_another_search_in_the_same_place(cli: Cli, space: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    search(space, out, trials=1)
    before = (out / "journal.jsonl").read_bytes()
    arguments = ("tune", "countries_part", *OPTIONS, "--out", out, "--trials", "2", "--space")
    cli(*arguments, space, "--n3", "0.5").refused(out, "another set of fixed settings", "choose another --out")
    cli(*arguments, written(tmp_path / "other.yaml", "dropout: [0, 0.1]")).refused(out, "another space")
    cli(*arguments, space, "--seeds", "2").refused(out, "another number of seeds")
    cli("tune", "countries", *arguments[2:], space).refused(out, "another graph")
    with hold_folder(out, "search"):
        cli(*arguments, space).refused(out, "another search is at work here")
    assert names(out) == {"journal.jsonl", "trials.jsonl", "best.yaml"}
    assert (out / "journal.jsonl").read_bytes() == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    cli(*arguments[:-4], other, *arguments[-3:], space).refused(other, "something other than a search")
    assert names(other) == {"mine.txt"}


# Stopping early --------------------------------------------------------------------------------------------------


def count_validations(monkeypatch: pytest.MonkeyPatch, last: int) -> list[tuple[int, float]]:
    """The validations of a search, as they come; the time is over with the ``last`` one."""
    validations: list[tuple[int, float]] = []
    original = trials._Watch.__call__

    def call(self: Any, epoch: int, mrr: float) -> None:
        validations.append((epoch, mrr))
        original(self, epoch, mrr)

    monkeypatch.setattr(trials._Watch, "__call__", call)
    monkeypatch.setattr(Clock, "is_over", property(lambda self: len(validations) >= last))
    return validations


def test_the_end_of_the_time_interrupts_at_a_validation(
    cli: Cli, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time for two and a half trials of four epochs: the third is counted with what it has reached."""
    validations = count_validations(monkeypatch, last=10)
    arguments = ("tune", "countries_part", *OPTIONS, "--epochs", "4", "--space", space, "--seconds", "60")
    assert cli(*arguments, "--out", tmp_path / "out").code == 0
    found = lines(tmp_path / "out")
    assert [line["state"] for line in found] == ["complete", "complete", "interrupted"]
    assert [epoch for epoch, _ in validations] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert found[2]["valid_mrr"] == max(mrr for _, mrr in validations[8:])
    assert "2 complete, 1 interrupted" in yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())["description"]
    assert names(tmp_path / "out") == {"journal.jsonl", "trials.jsonl", "best.yaml"}


def test_a_mean_over_fewer_seeds_is_no_figure(
    cli: Cli, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time ends in the first of two seeds: what the trial reached is told, but nothing is chosen by it."""
    count_validations(monkeypatch, last=1)
    arguments = ("tune", "countries_part", *OPTIONS, "--space", space, "--seconds", "60", "--out", tmp_path / "out")
    cli(*arguments, "--seeds", "2").refused("no trial", "reached a validation of each seed in time", "--seconds")
    [line] = lines(tmp_path / "out")
    assert (line["state"], line["valid_mrr"], len(line["runs"])) == ("interrupted", None, 1)
    assert line["runs"][0]["valid_mrr"] > 0


def test_the_median_counts_trainings_that_stopped_early_with_their_best() -> None:
    curves: list[dict[int, float]] = [
        {1: 0.1, 2: 0.5},  # stopped early: 0.5 from epoch 2 on
        {1: 0.2, 2: 0.3, 3: 0.2},  # best so far at 3: 0.3
        {1: 0.1, 2: 0.1, 3: 0.4},
        {1: 0.6, 2: 0.1, 3: 0.1},
        {1: 0.3, 2: 0.3, 3: 0.35},
    ]
    # At epoch 3 their bests are 0.5, 0.3, 0.4, 0.6, 0.35; the values at that epoch would have a median of 0.275.
    assert is_below_median(3, 0.39, curves)
    assert not is_below_median(3, 0.40, curves)
    # At epoch 1: 0.1, 0.2, 0.1, 0.6, 0.3.
    assert is_below_median(1, 0.19, curves)
    assert not is_below_median(1, 0.2, curves)
    assert not is_below_median(3, 0.0, curves[:4])  # too few to judge by


def test_pruned_trials_are_told_apart(tmp_path: Path) -> None:
    text = "learning_rate: [0.1, 0.15, 0.2, 0.25, 0.3, 0.0000001]"
    found = search(written(tmp_path / "space.yaml", text), tmp_path / "out", grid=True, prune=True, epochs=4)
    assert [trial.state for trial in found.trials[:6]] == ["complete"] * 5 + ["pruned"]
    pruned = found.trials[5]
    assert pruned.best_epoch is not None
    assert pruned.best_epoch == 1  # the first of four epochs is the first that counts
    assert pruned not in found.ranked
    kept = search(tmp_path / "space.yaml", tmp_path / "all", grid=True, epochs=4)
    assert [trial.state for trial in kept.trials] == ["complete"] * 6
    assert kept.best.settings == found.best.settings
    assert kept.best.valid_mrr == found.best.valid_mrr


def test_a_trial_that_fails_does_not_end_the_search(cli: Cli, tmp_path: Path) -> None:
    space = written(tmp_path / "space.yaml", "learning_rate: [1.0e+30, 0.1]")
    arguments = ("tune", "countries_part", *OPTIONS, "--optimizer", "sgd", "--grid", "--space", space)
    assert cli(*arguments, "--out", tmp_path / "out").code == 0
    failed, complete = lines(tmp_path / "out")
    assert (failed["state"], failed["valid_mrr"]) == ("failed", None)
    assert "the loss is not a number" in failed["reason"]
    assert complete["state"] == "complete"
    written(space, "learning_rate: [1.0e+30, 1.0e+29]")
    cli(*arguments, "--out", tmp_path / "all").refused("every trial", "failed", "the loss is not a number")


def test_several_seeds_of_which_one_fails(space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = trials.fit

    def fit(run: Any, **options: Any) -> Any:
        if run.train_config.seed == 1:
            raise UserError("the loss is not a number.")
        return original(run, **options)

    monkeypatch.setattr(trials, "fit", fit)
    with pytest.raises(UserError, match="every trial"):
        search(space, tmp_path / "out", trials=1, seeds=2)
    assert names(tmp_path / "out" / "work") == {"graph"}


# Several processes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_several_processes_share_the_trials(space: Path, tmp_path: Path) -> None:
    found = search(space, tmp_path / "out", trials=7, jobs=2)
    assert [trial.number for trial in found.trials] == list(range(7))
    assert found.count() == {"complete": 7}
    assert len({json.dumps(trial.settings) for trial in found.trials}) == 7
    alone = search(space, tmp_path / "alone", trials=7)
    # The first ten trials are random and do not depend on each other: both searches have the same.
    assert lines(tmp_path / "out") == lines(tmp_path / "alone")
    assert found.best == alone.best or found.best.valid_mrr == alone.best.valid_mrr
    assert names(tmp_path / "out") == {"journal.jsonl", "trials.jsonl", "best.yaml"}


# What it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--trials", "0"], ["trials=0"]),
        (["--jobs", "0"], ["jobs=0"]),
        (["--seeds", "0"], ["seeds=0"]),
        (["--seconds", "-1"], ["seconds=-1"]),
        (["--log", "csv"], ["log='csv' cannot be used in a search"]),
        (["--accelerator", "cpu", "--devices", "2"], ["devices='2' cannot be used in a search", "--jobs"]),
        (["--dim", "0"], ["dim"]),
        (["--model", "gat", "--heads", "5"], ["heads"]),
    ],
)
def test_options_that_make_no_sense(
    options: list[str], fragments: list[str], cli: Cli, space: Path, tmp_path: Path
) -> None:
    cli("tune", "countries_part", "--space", space, "--out", tmp_path / "out", *options).refused(*fragments)
    assert not (tmp_path / "out").exists()


def test_what_is_missing(cli: Cli, space: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    cli("tune", "--space", space, *out).refused("missing argument dataset")
    cli("tune", "countries_part", *out).refused("--space")
    cli("tune", "countries_part", "--space", space).refused("--out")
    cli("tune", "countries_part", "--space", "paper-reffactor", *out).refused("paper-reffactor", "paper-refactor")
    bad = written(tmp_path / "bad.yaml", "alpha: [0.1]")
    cli("tune", "countries_part", "--space", bad, *out).refused(bad, "setting 'alpha' belongs to model refactor")
    splits = {split: rows(triples) for split, triples in tiny_triples().items() if split == "train"}
    folder = write_folder(tmp_path / "no-valid", **splits)
    cli("tune", folder, "--space", space, *out).refused("no validation triples")
    assert not (tmp_path / "out").exists()


# Unseen entities --------------------------------------------------------------------------------------------------


def test_settings_can_be_chosen_on_entities_that_were_not_learned_of(tmp_path: Path) -> None:
    """A trial's figure is that of a model trained on the one part and asked about the other."""
    (tmp_path / "space.yaml").write_text("alpha: [0.1, 0.3]", encoding="utf-8")
    settings = {"model": "refactor", "dim": 16, "layers": 2, "features": "signature", "epochs": 2, "validate_every": 1}
    found = refactorgnn.tune(
        "countries_part", space=tmp_path / "space.yaml", grid=True, out=tmp_path / "search",
        unseen_share=0.3, progress=False, **settings,
    )  # fmt: skip
    pair = carve_pair(refactorgnn.load_graph("countries_part"), 0.3)
    config = TrainConfig.from_dict({"dataset": "x", **settings, "alpha": 0.3})
    run = Run.create(tmp_path / "run", config, pair.train)
    done = fit(run, progress=False, validation_graph=pair.unseen)
    assert {trial.settings["alpha"]: trial.valid_mrr for trial in found.trials}[0.3] == done.best_mrr
    own = protocols.evaluate_ranking(run.load_model().bind(pair.unseen), pair.unseen, "valid", confidence=False)
    assert own.metrics["mrr"] == pytest.approx(done.best_mrr, abs=1e-12)


@pytest.mark.parametrize("settings", [{"model": "lookup"}, {"model": "refactor", "layers": "inf"}])
def test_models_that_know_their_entities_only_cannot_be_validated_on_others(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    (tmp_path / "space.yaml").write_text("dim: [8, 16]", encoding="utf-8")
    with pytest.raises(UserError, match="new entities"):
        refactorgnn.tune(
            "countries_part", space=tmp_path / "space.yaml", out=tmp_path / "search", unseen_share=0.3, **settings
        )
    assert not (tmp_path / "search").exists()
