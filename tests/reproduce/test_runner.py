"""Running experiments: once each, whatever happens to the others or to the process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn.errors import UserError
from refactorgnn.locks import hold_folder
from refactorgnn.reproduce import runner, work
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Record, load_records
from refactorgnn.reproduce.runner import run_experiments
from refactorgnn.runs import CIRCUMSTANCES, Run
from tests.reproduce.small import PAIR, recipe

__all__ = ["recipe"]


def experiment(recipe: Recipe, row: str, seed: int = 0) -> Experiment:
    return recipe.experiment(row, PAIR.dataset, PAIR.graph, seed)


def run(experiments: list[Experiment], folder: Path, **options: Any) -> dict[str, str]:
    failures = run_experiments(experiments, folder, accelerator="cpu", progress=False, **options)
    return {failure.experiment.label: failure.reason for failure in failures}


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the runs that ``fit`` is called on; more than once where it is called again."""
    called: list[str] = []
    original = work.fit

    def fit(run: Run, *arguments: Any, **options: Any) -> Any:
        called.append(run.path.name)
        return original(run, *arguments, **options)

    monkeypatch.setattr(work, "fit", fit)
    return called


def lasting(record: Record) -> dict[str, Any]:
    """What a record says, but for when and where it was made."""
    content = json.loads(json.dumps(vars(record), default=lambda _: None))
    for part in (content, content["training"]):
        for name in ("seconds", "trained_with", "evaluated_with", "experiment", "costs"):
            part.pop(name, None)
    for settings in (content["config"], *(member["settings"] for member in content["config"].get("members", ()))):
        for name in CIRCUMSTANCES:
            settings.pop(name, None)
    return content


def test_a_record_says_what_evaluate_says(recipe: Recipe, tmp_path: Path) -> None:
    one = experiment(recipe, "counts", seed=3)
    assert run([one], tmp_path, keep_runs=True, group="small") == {}
    path = tmp_path / "records" / "small" / f"{one.key}.json"
    record, trained = Record.read(path), Run.open(tmp_path / "runs" / one.key)
    for ranking, found in (("full", record.full), ("partial", record.partial), ("partial-exact", record.partial_exact)):
        expected = refactorgnn.evaluate(trained, graph=PAIR.graph, ranking=ranking, seed=3)  # type: ignore[arg-type]
        assert {name: found[name] for name in expected.metrics} == expected.metrics
        assert found["num_triples"] == expected.protocol["num_triples"]
        assert found["ties"] == "realistic"
    assert record.config == trained.config.model_dump(mode="json")
    assert record.config["seed"] == record.seed == 3
    assert record.training["valid_mrr"] == trained.sidecar["valid_mrr"] == max(r["valid_mrr"] for r in full(trained))
    assert record.training["num_parameters"] == trained.sidecar["num_parameters"] > 0
    assert record.seconds > record.training["seconds"] > 0
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def full(run: Run) -> list[dict[str, Any]]:
    """The validations of a run with all digits: those of metrics.jsonl are rounded."""
    best = run.sidecar["valid_mrr"]
    return [{"valid_mrr": best if round(best, 6) == line["valid_mrr"] else line["valid_mrr"]} for line in run.records()]


def test_what_has_a_record_is_not_run_again(recipe: Recipe, tmp_path: Path, trainings: list[str]) -> None:
    noise, counts = experiment(recipe, "noise"), experiment(recipe, "counts")
    assert run([noise, noise], tmp_path) == {}
    assert trainings == [noise.key]
    before = (tmp_path / "records" / f"{noise.key}.json").read_bytes()
    assert run([noise, counts, replace(noise, label="in another table")], tmp_path) == {}
    assert trainings == [noise.key, counts.key]
    assert (tmp_path / "records" / f"{noise.key}.json").read_bytes() == before
    assert list((tmp_path / "runs").iterdir()) == []  # the records are all that stays


def test_two_commands_do_not_work_in_one_folder(recipe: Recipe, tmp_path: Path, trainings: list[str]) -> None:
    """The end of one would delete the runs that the other's ensembles are made of."""
    out, noise = tmp_path / "out", experiment(recipe, "noise")
    run([], out)
    with (
        hold_folder(out, "reproduction"),
        pytest.raises(UserError, match="another reproduction is at work here") as error,
    ):
        run([noise], out)
    assert str(out) in str(error.value)
    assert not trainings
    assert list(out.iterdir()) == []
    assert run([noise], out) == {}
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot be written"):
        run([noise], tmp_path / "file")


def test_an_interrupt_loses_nothing(
    recipe: Recipe, tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [experiment(recipe, "noise", seed) for seed in range(2)]
    run(two, tmp_path / "straight")
    trainings.clear()
    original, num_epochs = work.fit, []

    def interrupted(run: Run, **options: Any) -> Any:
        if len(trainings) == 1:  # in the midst of the second training
            short = run.train_config.model_copy(update={"epochs": 1})
            monkeypatch.setattr(run, "config", short)
            original(run, **options)
            num_epochs.append(len(run.records()))
            raise KeyboardInterrupt
        return original(run, **options)

    monkeypatch.setattr(work, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(two, tmp_path / "cut")
    assert num_epochs == [1]
    assert set(load_records(tmp_path / "cut")) == {two[0].key}
    monkeypatch.setattr(work, "fit", original)
    assert run(two, tmp_path / "cut") == {}
    assert trainings == [two[0].key, two[1].key, two[1].key]
    straight, cut = load_records(tmp_path / "straight"), load_records(tmp_path / "cut")
    assert {key: lasting(record) for key, record in cut.items()} == {k: lasting(r) for k, r in straight.items()}


def test_a_failure_is_told_and_the_others_finish(recipe: Recipe, tmp_path: Path) -> None:
    good, other = experiment(recipe, "noise"), experiment(recipe, "counts")
    bad = replace(good, settings={**good.settings, "alpha": 1e38}, label="diverging")
    lost = replace(good, graph="countries_past_ind", label="lost")
    failures = run([bad, good, lost, other], tmp_path)
    assert set(failures) == {"diverging", "lost"}
    assert "smaller learning rate" in failures["diverging"]
    assert "did you mean 'countries_part_ind'" in failures["lost"]
    assert all("\n" not in reason for reason in failures.values())
    assert set(load_records(tmp_path)) == {good.key, other.key}


@pytest.mark.slow
def test_processes_make_the_same_records(recipe: Recipe, tmp_path: Path) -> None:
    lost = replace(experiment(recipe, "noise"), dataset="countries_past", label="lost")
    experiments = [experiment(recipe, "noise"), lost, experiment(recipe, "both")]
    for jobs in (1, 2):
        failures = run(experiments, tmp_path / str(jobs), jobs=jobs)
        assert list(failures) == ["lost"]
        assert "did you mean 'countries_part'" in failures["lost"]
    one, two = (load_records(tmp_path / str(jobs)) for jobs in (1, 2))
    assert set(one) == {one.key for one in (experiments[2], *experiments[2].members)}
    assert {key: lasting(record) for key, record in one.items()} == {k: lasting(r) for k, r in two.items()}


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")]
)
def test_trainings_that_do_not_fit_into_memory_together_are_done_one_by_one(
    error: Exception, recipe: Recipe, tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(runs: list[Run], **_: Any) -> None:
        raise error

    monkeypatch.setattr(work, "fit_together", run_out)
    tasks = [
        work.Task(one, tmp_path / "runs", tmp_path / f"{one.seed}.json", False, {"accelerator": "cpu"}, None)
        for one in (experiment(recipe, "noise", seed) for seed in range(2))
    ]
    assert work.perform_together(tasks) == [None, None]
    assert trainings == [task.experiment.key for task in tasks]
    assert all((tmp_path / f"{seed}.json").is_file() for seed in range(2))


def test_seeds_share_a_process_on_a_gpu_while_there_are_enough_for_all_jobs(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work.Task, "on_gpu", True)
    tasks = [
        work.Task(experiment(recipe, row, seed), tmp_path, None, False, {}, None)
        for row in ("noise", "counts")
        for seed in range(5)
    ]
    for jobs, sizes in ((1, [5, 5]), (3, [3, 2, 3, 2]), (10, [1] * 10), (16, [1] * 10)):
        groups = runner._grouped(tasks, jobs)
        assert [len(group) for group in groups] == sizes
        assert [task for group in groups for task in group] == tasks


def test_what_takes_longest_begins_first(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = experiment(recipe, "noise")
    slow = [replace(noise, settings={"model": model}) for model in ("rulen", "nbfnet")]
    begun: list[str] = []

    def do_nothing(tasks: Sequence[work.Task]) -> list[str | None]:
        begun.extend(task.experiment.config.model for task in tasks)
        return [None] * len(tasks)

    monkeypatch.setattr(runner, "perform_together", do_nothing)
    run([noise, *slow, replace(noise, seed=1)], tmp_path)
    assert begun == ["nbfnet", "rulen", "refactor", "refactor"]


def test_the_memory_that_a_recipe_sets_goes_before_that_of_a_job(recipe: Recipe, tmp_path: Path) -> None:
    plain = experiment(recipe, "noise")
    set_by_recipe = replace(plain, settings={**plain.settings, "memory_budget_mb": 77})
    for one, expected in ((plain, 5), (set_by_recipe, 77)):
        task = work.Task(one, tmp_path, None, False, {"accelerator": "cpu", "memory_budget_mb": 5}, None)
        assert work._config(task).memory_budget_mb == expected


def test_an_ensemble_is_made_of_experiments(recipe: Recipe, tmp_path: Path, trainings: list[str]) -> None:
    both, noise = experiment(recipe, "both"), experiment(recipe, "noise")
    run([noise], tmp_path)
    assert run([both], tmp_path) == {}
    keys = [member.key for member in both.members]
    assert keys[0] == noise.key
    # The run of the first member had been deleted with its record written: it is trained again, and only that.
    assert trainings == [noise.key, *keys]
    records = load_records(tmp_path)
    assert set(records) == {both.key, *keys}
    members = records[both.key].members
    assert members is not None
    assert [member["key"] for member in members] == keys
    assert sum(member["weight"] for member in members) == pytest.approx(1)
    assert records[both.key].training["valid_mrr"] >= max(records[key].training["valid_mrr"] for key in keys)
    chosen = [member["key"] for member in members if member["weight"]]
    assert [member["run"] for member in records[both.key].config["members"]] == chosen
    assert list((tmp_path / "runs").iterdir()) == []
    assert run([both], tmp_path) == {}
    assert len(trainings) == 4


def test_an_ensemble_fails_with_its_member(recipe: Recipe, tmp_path: Path) -> None:
    both = experiment(recipe, "both")
    bad = replace(both.members[0], settings={**both.members[0].settings, "alpha": 1e38}, label="diverging")
    failures = run([replace(both, members=(bad, *both.members[1:]))], tmp_path)
    assert failures[both.label] == "its member diverging failed"
    assert set(load_records(tmp_path)) == {member.key for member in both.members[1:]}


@pytest.mark.parametrize(("options", "problem"), [({"jobs": 0}, "jobs=0"), ({"accelerator": "cpux"}, "cpux")])
def test_nonsense_is_refused_at_once(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        run_experiments([], tmp_path, **options)


def test_discarding_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "run" / "graph").mkdir(parents=True)
    (tmp_path / ".run").mkdir()  # a kill in the midst of an earlier attempt
    work.discard(tmp_path / "run")
    work.discard(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
