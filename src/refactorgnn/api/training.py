"""Training, searching and combining: :func:`train`, :func:`tune`, :func:`ensemble`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refactorgnn.data.loading import load_graph
from refactorgnn.errors import UserError
from refactorgnn.runs import Run
from refactorgnn.training.beginning import begin_run
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.config_files import ConfigFile
from refactorgnn.training.ensembling import make_ensemble
from refactorgnn.training.loop import fit
from refactorgnn.training.processes import is_helper, launch, make_fabric
from refactorgnn.training.search import DEFAULT_TRIALS, Search
from refactorgnn.training.search_records import SearchResult
from refactorgnn.training.search_space import Space
from refactorgnn.training.tuning import check_search, run_search

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(
    dataset: str | Path | None = None,
    *,
    config: str | Path | ConfigFile | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    data_root: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Train a model; ``refactorgnn train``.

    Args:
        dataset: A dataset name, a folder with train/valid/test, or a file of triples; ``config`` may name it instead.
        config: A YAML file to take settings from (see :mod:`refactorgnn.training.config_files`).
        out: The run folder to make; ``runs/DATASET-MODEL-SCORER-SEED``, without the scorer if the model
            has none, if not given.
        resume: Go on with the run in ``out`` if it was interrupted, with its settings if none are given here; start it
            if it is not there.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.
        **settings: Any field of :class:`~refactorgnn.training.config.TrainConfig`; these override ``config``.

    Returns:
        The finished run, its best weights chosen by validation MRR.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", scorer="complex", dim=32, epochs=3, out="runs/example")
        >>> sorted(path.name for path in run.path.iterdir())[:3]
        ['config.yaml', 'graph', 'last.safetensors']
    """
    if resume and out and dataset is None and config is None and (Path(out) / "config.yaml").is_file():
        settings = Run.open(out).train_config.model_dump() | settings  # all is said there
    chosen = _train_config(config, settings if dataset is None else {"dataset": str(dataset), **settings})
    name = Path(chosen.dataset).resolve().name.split(".")[0]
    path = Path(out) if out else Path("runs") / "-".join([name, *chosen.kind, str(chosen.seed)])
    fabric = make_fabric(chosen)
    if not is_helper():  # what can go wrong before the first epoch goes wrong in one process
        begin_run(chosen, path, resume=resume, data_root=data_root, progress=progress)
    launch(fabric, _train, path, progress)
    return Run.open(path)


def _train(fabric: Fabric, path: Path, progress: bool) -> None:
    """What every process of a training does."""
    fit(Run.open(path), fabric, progress=progress and fabric.is_global_zero)


def tune(
    dataset: str | Path | None = None,
    *,
    space: str | Path,
    out: str | Path,
    config: str | Path | ConfigFile | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    jobs: int = 1,
    seeds: int = 1,
    grid: bool = False,
    prune: bool = False,
    unseen_share: float = 0.0,
    data_root: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> SearchResult:
    """Search for settings by validation MRR, the test split left out; ``refactorgnn tune``.

    Called again with the same arguments, it goes on with a search that was interrupted; with more ``trials`` or
    ``seconds``, with one that was done.

    Args:
        dataset: A dataset name, a folder with train/valid/test, or a file of triples; ``config`` may name it instead.
        space: A YAML file of the settings to choose (see :mod:`refactorgnn.training.search_space`), or the name of a
            space that comes with the package, such as ``"paper-refactor"``.
        out: The search folder to make, or to go on with.
        config: A YAML file to take the other settings from (see :mod:`refactorgnn.training.config_files`).
        trials: How many trials there are to be, 40 if not given.
        seconds: The time for all trials together. Trainings under way are interrupted at their next validation and
            counted with what they have reached.
        jobs: The processes that train at the same time, on one device. They are spawned, so a program that gives
            several must be guarded by ``if __name__ == "__main__"``.
        seeds: The trainings of a trial, whose mean counts, with seeds from that of the settings on.
        grid: Train every combination of a space of choices, in its order, instead of what TPE chooses.
        prune: Stop trials that are below the median of the complete ones at the same epoch, on their first seed.
        unseen_share: Set this share of the entities apart: trials learn on the facts among the others and are
            validated on facts among these, so that settings are chosen that do well on entities never seen.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar with the best figure so far.
        **settings: Any field of :class:`~refactorgnn.training.config.TrainConfig`; these override ``config``, and what
            is given here is not searched, even if ``space`` has it.

    Returns:
        The trials. The best settings are in ``best.yaml`` in the folder, to be given to :func:`train`.

    Example:
        >>> import pathlib, refactorgnn
        >>> _ = pathlib.Path("space.yaml").write_text("scorer: [distmult, complex]")
        >>> found = refactorgnn.tune("countries", space="space.yaml", grid=True, out="search", dim=8, epochs=1)
        >>> [trial.settings for trial in found.trials]
        [{'scorer': 'distmult'}, {'scorer': 'complex'}]
        >>> run = refactorgnn.train(config=found.best_path, out="runs/best")
    """
    changes = settings if dataset is None else {"dataset": str(dataset), **settings}
    experiment = ConfigFile.read(config) if isinstance(config, str | Path) else config
    chosen = _train_config(experiment, changes)
    base = {**(experiment.settings if experiment else {}), **changes}
    known = Space.read(space, base, fixed=settings)
    if grid and trials is not None:
        raise UserError(f"a grid trains every combination of its space: leave trials={trials} out.")
    total = len(known.cells()) if grid else DEFAULT_TRIALS if trials is None else trials
    search = Search(Path(out), base, known, total, seconds, jobs, seeds, grid, prune, unseen_share)
    check_search(search)  # before a download
    graph = load_graph(chosen.dataset, data_root=data_root, seed=chosen.seed, progress=progress)
    return run_search(search, graph, progress=progress)


def ensemble(
    runs: Sequence[str | Path | Run],
    *,
    out: str | Path,
    weights: Sequence[float] | None = None,
    rounds: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Run:
    """Make one model of several finished runs, whose scores add up; ``refactorgnn ensemble``.

    Args:
        runs: The runs, or their folders, all trained on the same graph with the same splits.
        out: The run folder to make. It holds all it needs: the runs may be deleted afterwards.
        weights: A positive weight for each run, divided by their sum; if not given, members and weights are chosen by
            the MRR on the validation split (see :mod:`refactorgnn.training.member_choice`).
        rounds: The most moves of that search; 20 if not given.
        device: Where to compute.
        progress: Show a bar.

    Returns:
        A run like any other, to be evaluated and asked.

    Example:
        >>> import refactorgnn
        >>> settings = {"dim": 32, "epochs": 3}
        >>> runs = [refactorgnn.train("countries", scorer=name, out=f"runs/{name}", **settings)
        ...         for name in ("complex", "distmult")]
        >>> both = refactorgnn.ensemble(runs, out="runs/both", weights=[1, 3])
        >>> both.config.model, [member.weight for member in both.config.members]
        ('ensemble', [0.25, 0.75])
    """
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    return make_ensemble(opened, out, weights=weights, rounds=rounds, device=device, progress=progress)


def _train_config(config: str | Path | ConfigFile | None, settings: dict[str, Any]) -> TrainConfig:
    if config is not None:
        experiment = config if isinstance(config, ConfigFile) else ConfigFile.read(config)
        return experiment.train_config(settings)
    if "dataset" not in settings:
        raise UserError(
            "missing argument dataset: give a dataset name, a folder, a file of triples, or a config file that names "
            "one; see refactorgnn train --help."
        )
    return TrainConfig.from_dict(settings)
