"""From experiments to records: what is missing is run, what fails is told at the end, what was interrupted goes on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refactorgnn.errors import UserError
from refactorgnn.locks import hold_folder
from refactorgnn.progress import Counter, counting
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.pool import do_all
from refactorgnn.reproduce.records import FOLDER, load_records
from refactorgnn.reproduce.work import Task, discard, perform_together
from refactorgnn.storage import write_error
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.processes import make_fabric

# Seeds of one experiment that are trained side by side in a process: enough to keep a GPU busy with small kernels.
_MOST_TOGETHER = 8
# MiB of temporaries on a GPU, for all processes together and of each at least; every training of one has as much.
_MEMORY_MB = 960
_LEAST_MEMORY_MB = 64
# Models that take minutes where others take seconds, the slowest first: whatever is begun last, everybody waits for.
_SLOW_MODELS = ("grail", "nbfnet", "drum", "neural-lp", "rulen")


@dataclass(frozen=True)
class Failure:
    """An experiment that came to nothing, and why, in one line."""

    experiment: Experiment
    reason: str


def run_experiments(
    experiments: Iterable[Experiment],
    folder: str | Path,
    *,
    jobs: int = 1,
    accelerator: str = "auto",
    progress: bool = True,
    keep_runs: bool = False,
    data_root: str | Path | None = None,
    group: str = "",
) -> list[Failure]:
    """Run the experiments that have no record yet, in ``FOLDER/runs``, and write ``FOLDER/records/GROUP/KEY.json``.

    Call it again after an interrupt: finished experiments are not run again, unfinished trainings go on.

    Args:
        experiments: The experiments; the same one may be among them several times.
        folder: The folder of runs and records.
        jobs: Processes that run experiments side by side; 1: this one.
        accelerator: Where to compute.
        progress: Show a bar.
        keep_runs: Keep run folders; else each is deleted once its record is written and no ensemble needs it.
        data_root: A folder with local copies of the known datasets.
        group: The folder below ``records`` for new ones.

    Returns:
        What failed.

    Raises:
        UserError: if another such call is at work in the folder: one would delete the runs that the other needs.
    """
    folder, circumstances = Path(folder), _circumstances(jobs, accelerator)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with hold_folder(folder, "reproduction"):
        plan = _Plan(folder, list(experiments), circumstances, keep_runs, data_root, group)
        return _carry_out(plan, jobs, progress)


def _carry_out(plan: _Plan, jobs: int, progress: bool) -> list[Failure]:
    plan.tidy()
    single, ensembles = plan.single_tasks(), plan.ensemble_tasks()
    failures: list[Failure] = []
    with counting("experiments", len(single) + len(ensembles), enabled=progress) as bar:
        failures += _run(single, jobs, bar)
        failed = {failure.experiment.key for failure in failures}
        possible = []
        for task in ensembles:
            missing = [member for member in task.experiment.members if member.key in failed]
            if missing:
                failures.append(Failure(task.experiment, f"its member {missing[0].name} failed"))
                bar.advance()
            else:
                possible.append(task)
        failures += _run(possible, jobs, bar)
    plan.tidy()
    return failures


def _run(tasks: Sequence[Task], jobs: int, bar: Counter) -> list[Failure]:
    failures = []
    groups = do_all(
        perform_together, _grouped(tasks, jobs), jobs, lambda group: bar.advance(0, note=group[0].experiment.name)
    )
    for group, outcome in groups:
        bar.advance(len(group))
        problems = [outcome] * len(group) if isinstance(outcome, str) else outcome
        failures += [
            Failure(task.experiment, problem) for task, problem in zip(group, problems, strict=True) if problem
        ]
    return failures


def _grouped(tasks: Sequence[Task], jobs: int) -> list[tuple[Task, ...]]:
    """Trainings that differ in their seed alone share a GPU in one process; all others are on their own.

    Where there are few, they do not wait for each other in one process while others have nothing to do.
    """
    most = max(1, min(_MOST_TOGETHER, len(tasks) // jobs))
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.experiment.key_but_seed if task.on_gpu else task.experiment.key, []).append(task)
    return [tuple(group[start : start + most]) for group in groups.values() for start in range(0, len(group), most)]


class _Plan:
    """What is to be done, and where."""

    def __init__(
        self,
        folder: Path,
        experiments: list[Experiment],
        circumstances: dict[str, Any],
        keep_runs: bool,
        data_root: str | Path | None,
        group: str,
    ) -> None:
        self.folder, self.data_root, self.keep_runs = folder, data_root, keep_runs
        self.runs, self.records = folder / "runs", folder / FOLDER / group
        self.circumstances = circumstances
        self.experiments = {experiment.key: experiment for experiment in experiments}
        self.recorded = set(load_records(folder))
        self.ensembles = [one for one in self.experiments.values() if one.members and one.key not in self.recorded]
        self.members = {member.key: member for ensemble in self.ensembles for member in ensemble.members}

    def single_tasks(self) -> list[Task]:
        """Trainings, slow ones first: those without a record, and the members of ensembles that have none."""
        wanted = {key: one for key, one in self.experiments.items() if not one.members} | self.members
        chosen = [one for key, one in wanted.items() if key not in self.recorded or key in self.members]
        return [self._task(one) for one in sorted(chosen, key=_place_in_queue)]

    def ensemble_tasks(self) -> list[Task]:
        """Ensembles without a record."""
        return [self._task(one) for one in self.ensembles]

    def _task(self, experiment: Experiment) -> Task:
        is_recorded = experiment.key in self.recorded
        return Task(
            experiment,
            self.runs,
            record=None if is_recorded else self.records / f"{experiment.key}.json",
            keep=self.keep_runs or experiment.key in self.members,
            circumstances=self.circumstances,
            data_root=self.data_root,
        )

    def tidy(self) -> None:
        """Delete the runs of experiments that have a record, unless an ensemble that has none needs them."""
        if self.keep_runs:
            return
        recorded = set(load_records(self.folder))
        needed = {member.key for one in self.ensembles if one.key not in recorded for member in one.members}
        for key in {*self.experiments, *self.members} & recorded - needed:
            discard(self.runs / key)


def _place_in_queue(experiment: Experiment) -> int:
    model = experiment.config.model
    return _SLOW_MODELS.index(model) if model in _SLOW_MODELS else len(_SLOW_MODELS)


def _circumstances(jobs: int, accelerator: str) -> dict[str, Any]:
    """Where to compute; processes side by side share the cores, and a GPU multiplies as fast as it can.

    Raises:
        UserError: if there is no such accelerator here, or nobody to do the work.
    """
    if jobs < 1:
        raise UserError(f"jobs={jobs} cannot be used: choose a whole number from 1 on.")
    chosen: dict[str, Any] = {"accelerator": accelerator}
    if jobs > 1:
        chosen["threads"] = max(1, (os.cpu_count() or 1) // jobs)
    fabric = make_fabric(TrainConfig.from_dict({"dataset": "", **chosen}))  # refuse now what every training would
    if fabric.device.type == "cuda":
        chosen |= {"tf32": True, "memory_budget_mb": max(_LEAST_MEMORY_MB, _MEMORY_MB // jobs)}
    return chosen
