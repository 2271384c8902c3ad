"""The Python API, one function for each command.

:func:`train`, :func:`ensemble`, :func:`evaluate`, :func:`predict`, :func:`reproduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph
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
