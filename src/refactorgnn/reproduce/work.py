"""One experiment: train or combine, ask about the test split once, write the record."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph
from refactorgnn.evaluation.protocols import Evaluation, evaluate_rankings
from refactorgnn.evaluation.ranking import Ties
from refactorgnn.measuring import forget_peak, peak_mb
from refactorgnn.provenance import provenance
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.records import Record
from refactorgnn.runs import Run
from refactorgnn.training.beginning import begin_run
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.ensemble_config import EnsembleConfig
from refactorgnn.training.ensembling import make_ensemble
from refactorgnn.training.loop import fit, fit_together
from refactorgnn.training.processes import make_fabric

TIES: Ties = "realistic"


@dataclass(frozen=True)
class Task:
    """An experiment, and where and how to do it.

    Args:
        experiment: The experiment.
        runs: The folder of run folders, each named by a key.
        record: The record to write; None: only the trained run is needed.
        keep: Whether to leave the run folder there.
        circumstances: Settings that say where to compute.
        data_root: A folder with local copies of the known datasets.
    """

    experiment: Experiment
    runs: Path
    record: Path | None
    keep: bool
    circumstances: dict[str, Any]
    data_root: str | Path | None

    @property
    def on_gpu(self) -> bool:
        """Whether it is computed on a GPU."""
        return _device(self).startswith("cuda")

    def run_folder(self, experiment: Experiment | None = None) -> Path:
        """The run folder of the experiment, or of a member of it."""
        return self.runs / (experiment or self.experiment).key


def perform_together(tasks: Sequence[Task]) -> list[str | None]:
    """Do experiments on the same training graph, side by side; trainings that were interrupted go on.

    Returns:
        What went wrong with each, on one line; None where nothing did.
    """
    try:
        trained = _train_together(tasks) if len(tasks) > 1 else [None] * len(tasks)
        return [_attempt(task, run) for task, run in zip(tasks, trained, strict=True)]
    finally:
        _free_memory()


def _attempt(task: Task, trained: Run | None) -> str | None:
    try:
        _forget_peak_memory()
        _perform(task, trained)
    except Exception as error:  # one experiment is not to stop the others
        return reason(error)
    return None


def _perform(task: Task, run: Run | None) -> None:
    """Do an experiment, of which the training may have been done."""
    is_alone = run is None
    if run is None:
        run = _combined(task) if task.experiment.members else _trained(task)
    if task.record is not None:
        _measured(task, run, is_alone=is_alone).write(task.record)
    if not task.keep:
        discard(run.path)


def _train_together(tasks: Sequence[Task]) -> Sequence[Run | None]:
    """Train all of them; none if one fails, or if memory is short: each is then on its own, and goes on or fails."""
    try:
        graph = load_graph(tasks[0].experiment.dataset, data_root=tasks[0].data_root, progress=False)
        begun = [_begun(task, graph) for task in tasks]
        fit_together(begun, progress=False)
        return begun
    except Exception:  # of memory in whatever form: there is more of it for one alone
        pass
    _free_memory()  # outside the handler, which holds on to what has failed
    return [None] * len(tasks)


def _begun(task: Task, graph: KnowledgeGraph | None = None) -> Run:
    config, path = _config(task), task.run_folder()
    return begin_run(config, path, resume=True, graph=graph, data_root=task.data_root, progress=False)


def _config(task: Task) -> TrainConfig:
    """The settings of the training, or of the first member's, with those that say where to compute."""
    some = (task.experiment.members or (task.experiment,))[0]
    settings = {**some.config.model_dump(), **task.circumstances}
    if some.config.memory_budget_mb:  # as the recipe says
        settings["memory_budget_mb"] = some.config.memory_budget_mb
    return TrainConfig.from_dict(settings)


def _trained(task: Task) -> Run:
    fit(run := _begun(task), progress=False)
    return run


def _combined(task: Task) -> Run:
    """The ensemble of the members' runs, which are there; it is made in one step, so there is nothing to resume."""
    path = task.run_folder()
    if (path / "config.yaml").is_file():
        return Run.open(path)
    members = [Run.open(task.run_folder(member)) for member in task.experiment.members]
    return make_ensemble(members, path, device=_device(task), progress=False)


def _device(task: Task) -> str:
    """The device that a training with the task's circumstances would take."""
    return str(make_fabric(_config(task)).device)


def _measured(task: Task, run: Run, *, is_alone: bool) -> Record:
    experiment, device, started = task.experiment, _device(task), time.perf_counter()
    model = run.load_model(device)
    graph = run.graph
    if experiment.graph is not None:
        graph = load_graph(experiment.graph, data_root=task.data_root, progress=False)
    graph = graph.with_relations(model.relation_names)
    binding = time.perf_counter()
    bound = model.bind(graph)
    binding = time.perf_counter() - binding
    evaluations = evaluate_rankings(bound, graph, ties=TIES, seed=experiment.seed, confidence=False)
    about = ("seconds", "best_epoch", "valid_mrr", "num_parameters", "trained_with")
    training: dict[str, Any] = {name: run.sidecar.get(name) for name in about}
    return Record(
        key=experiment.key,
        dataset=experiment.dataset,
        graph=experiment.graph,
        seed=experiment.seed,
        config=_without_paths(run),
        training=training,
        full=_metrics(evaluations["full"]),
        partial=_metrics(evaluations["partial"]),
        partial_exact=_metrics(evaluations["partial-exact"]),
        evaluated_with=provenance(device),
        seconds=round(training["seconds"] + time.perf_counter() - started, 3),
        members=_candidates(experiment, run) if experiment.members else None,
        costs=_costs(binding + evaluations["full"].seconds, device, is_alone=is_alone),
    )


def _costs(inference_seconds: float, device: str, *, is_alone: bool) -> dict[str, float]:
    """What an answer costs; the peak of memory, training included, only where no other training shares it."""
    costs = {"inference_seconds": round(inference_seconds, 3)}
    if is_alone:
        on_gpu = device.startswith("cuda")
        costs["peak_memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6 if on_gpu else peak_mb(), 1)
    return costs


def _forget_peak_memory() -> None:
    forget_peak()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _metrics(evaluation: Evaluation) -> dict[str, Any]:
    kept = ("num_triples", "num_entities", "ties")
    return evaluation.metrics | {name: evaluation.protocol[name] for name in kept}


def _without_paths(run: Run) -> dict[str, Any]:
    """The settings of a run; the members of an ensemble are named by their keys."""
    config = run.config
    if isinstance(config, EnsembleConfig):
        members = (member.model_copy(update={"run": Path(member.run).name}) for member in config.members)
        config = config.model_copy(update={"members": tuple(members)})
    return config.model_dump(mode="json")


def _candidates(experiment: Experiment, run: Run) -> list[dict[str, Any]]:
    """The members that the choice was made from; weight 0: not chosen."""
    return [
        {"key": member.key, "weight": about["weight"], "valid_mrr": about["valid_mrr"]}
        | {"config": member.config.model_dump(mode="json")}
        for member, about in zip(experiment.members, run.sidecar["candidates"], strict=True)
    ]


def discard(run_folder: Path) -> None:
    """Delete a run; a kill in the midst of it leaves nothing that looks like a run."""
    rubbish = run_folder.with_name(f".{run_folder.name}")
    shutil.rmtree(rubbish, ignore_errors=True)
    if run_folder.exists():
        run_folder.rename(rubbish)
        shutil.rmtree(rubbish, ignore_errors=True)


def _free_memory() -> None:
    """Leave the device to the other processes that share it."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else "no message"
    return first if isinstance(error, ValueError) else f"{type(error).__name__}: {first}"
