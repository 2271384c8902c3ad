"""The Python API, one function for each command.

:func:`train`, :func:`tune`, :func:`ensemble`, :func:`evaluate`, :func:`predict`, :func:`reproduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph
from refactorgnn.devices import usable_device
from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import Evaluation, Ranking, evaluate_ranking
from refactorgnn.evaluation.ranking import Ties
from refactorgnn.predict.predictor import Answer, Predictor
from refactorgnn.reproduce.reproduction import Reproduction, reproduce_table
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
        out: The run folder to make; ``runs/DATASET-MODEL-SCORER-SEED`` if not given.
        resume: Go on with the run in ``out`` if it was interrupted; start it if it is not there.
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
    chosen = _train_config(config, settings if dataset is None else {"dataset": str(dataset), **settings})
    name = Path(chosen.dataset).resolve().name.split(".")[0]
    path = Path(out) if out else Path("runs") / f"{name}-{chosen.model}-{chosen.scorer}-{chosen.seed}"
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
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar with the best figure so far.
        **settings: Any field of :class:`~refactorgnn.training.config.TrainConfig`; these override ``config``.

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
    known = Space.read(space, base)
    if grid and trials is not None:
        raise UserError(f"a grid trains every combination of its space: leave trials={trials} out.")
    total = len(known.cells()) if grid else DEFAULT_TRIALS if trials is None else trials
    search = Search(Path(out), base, known, total, seconds, jobs, seeds, grid, prune)
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


def evaluate(
    run: str | Path | Run,
    *,
    split: str = "test",
    graph: str | Path | KnowledgeGraph | None = None,
    ranking: Ranking = "full",
    ties: Ties = "realistic",
    seed: int = 0,
    confidence: bool = True,
    device: str = "cpu",
    data_root: str | Path | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure a trained run; ``refactorgnn evaluate``.

    Args:
        run: The run, or its folder.
        split: The split to ask about.
        graph: Another graph to measure on: a dataset name, a folder or a graph; the training graph if not given.
        ranking: ``"full"``, ``"partial"`` or ``"partial-exact"``.
        ties: ``"realistic"``, ``"optimistic"`` or ``"pessimistic"``.
        seed: The seed of the negatives and of the bootstrap.
        confidence: Whether to add bootstrap intervals.
        device: Where to compute.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/measured")
        >>> result = refactorgnn.evaluate(run, ranking="partial-exact")
        >>> list(result.metrics)
        ['mrr', 'mr', 'amri', 'hits@1', 'hits@3', 'hits@10']
        >>> result.protocol["num_negatives"]
        49
    """
    if not 0 <= seed < 2**63:
        raise UserError(f"seed={seed} cannot be used: choose a whole number from 0 on.")
    run = run if isinstance(run, Run) else Run.open(run)
    model = run.load_model(device)
    target = run.graph if graph is None else _graph(graph, data_root, progress)
    target = target.with_relations(model.relation_names)
    return evaluate_ranking(
        model.bind(target),
        target,
        split,
        ranking=ranking,
        ties=ties,
        seed=seed,
        confidence=confidence,
        progress=progress,
    )


def predict(
    run: str | Path | Run | Predictor,
    *,
    relation: str,
    head: str | None = None,
    tail: str | None = None,
    k: int = 10,
    include_known: bool = False,
    device: str = "cpu",
) -> list[Answer]:
    """Ask a trained run; ``refactorgnn predict``.

    Args:
        run: The run, its folder, or a predictor made of it (to ask many questions without loading again).
        relation: The relation.
        head: The head, to ask for tails.
        tail: The tail, to ask for heads.
        k: The number of answers.
        include_known: Whether answers that the graph already has may be among them.
        device: Where to compute, unless a predictor is given.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/asked")
        >>> answers = refactorgnn.predict(run, head="France", relation="borders", k=5)
        >>> len(answers), any(answer.known for answer in answers)
        (5, False)
    """
    if (head is None) == (tail is None):
        raise UserError("a question has one unknown: give either head or tail, and the relation.")
    predictor = run if isinstance(run, Predictor) else Predictor.load(run, device)
    if head is not None:
        return predictor.tails(head, relation, k, include_known=include_known)
    return predictor.heads(relation, str(tail), k, include_known=include_known)


def reproduce(
    table: str,
    *,
    recipe: str = "paper",
    datasets: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    seeds: int = 5,
    jobs: int = 1,
    accelerator: str = "auto",
    out: str | Path = "results",
    pages: str | Path | None = None,
    run: bool = True,
    keep_runs: bool = False,
    data_root: str | Path | None = None,
    progress: bool = True,
) -> Reproduction:
    """Measure a table of the paper again, beside the published figures; ``refactorgnn reproduce``.

    Args:
        table: The table, by its name in :data:`refactorgnn.reproduce.tables.TABLES`.
        recipe: ``"paper"``: the published choices; ``"best"``: whatever wins on validation.
        datasets: Some of its datasets; all if not given.
        rows: Some of its rows; all if not given.
        seeds: How many seeds, from 0 on.
        jobs: Experiments side by side, in processes of their own; a program that sets it above 1 must keep what it
            does under ``if __name__ == "__main__"``, as for all of Python's spawned processes.
        accelerator: Where to compute.
        out: The folder of records, and of runs while they last. What has a record there is not run again.
        pages: The folder to write the table's page to; ``out`` if not given.
        run: False: run nothing, and write no page unless ``pages`` is given; show what the records have so far.
        keep_runs: Keep the trained models; else a run is deleted after its record is written.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.

    Returns:
        The cells of the table, what failed, what it has cost. A failure of one experiment does not stop the others.

    Example:
        >>> import refactorgnn
        >>> result = refactorgnn.reproduce("ablation", rows=["with n[v] [T]"], run=False)
        >>> [(cell.row.name, cell.column.name, cell.published.mean, cell.ours) for cell in result.cells]
        [('with n[v] [T]', 'fb237_v1', 0.486, None)]
    """
    return reproduce_table(
        table,
        recipe=recipe,
        datasets=datasets,
        rows=rows,
        num_seeds=seeds,
        jobs=jobs,
        accelerator=accelerator,
        out=out,
        pages=pages,
        run=run,
        keep_runs=keep_runs,
        data_root=data_root,
        progress=progress,
    )


def reproduce_complexity(
    out: str | Path, *, accelerator: str = "auto", quick: bool = False, progress: bool = True
) -> list[Path]:
    """Measure what a training step costs as L, d and |T| grow; ``refactorgnn reproduce complexity``.

    Args:
        out: The folder of the record, its page and its figures.
        accelerator: Where to compute: ``"auto"``, ``"cpu"``, ``"cuda"``, …
        quick: Tiny sizes, to see that it works.
        progress: Show a bar.

    Returns:
        The files that were written.
    """
    # Both import what only this needs: the system's resource counters, and matplotlib.
    from refactorgnn.reproduce.complexity import ComplexityOptions, measure_complexity
    from refactorgnn.reproduce.complexity_page import write_complexity

    has_gpu = torch.cuda.is_available() if accelerator == "auto" else accelerator in ("cuda", "gpu")
    device = "cuda" if has_gpu else ("cpu" if accelerator == "auto" else accelerator)
    options = ComplexityOptions(quick=quick, device=str(usable_device(device)))
    return write_complexity(measure_complexity(options, progress=progress), out)


def _graph(source: str | Path | KnowledgeGraph, data_root: str | Path | None, progress: bool) -> KnowledgeGraph:
    return source if isinstance(source, KnowledgeGraph) else load_graph(source, data_root=data_root, progress=progress)


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
