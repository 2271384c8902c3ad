"""``refactorgnn train``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from refactorgnn import api
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.evaluation.protocols import Evaluation
from refactorgnn.provenance import provenance
from refactorgnn.runs import Run
from refactorgnn.scorers import SCORERS
from refactorgnn.storage import write_text
from refactorgnn.training.config import CONFIGS, settings_by_name

DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder with local copies of the known datasets (or set REFACTORGNN_DATA).", show_default=False),
]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, …")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SETTINGS = settings_by_name()


def _setting(name: str, **more: Any) -> Any:
    """An option for a setting; None means: the default of the model's settings."""
    description = next(field.description for field in _SETTINGS[name].values() if field.description)
    # unescaped, rich takes the brackets for a style
    return typer.Option(help=f"{description} {escape(f'[{default_text(name)}]')}", show_default=False, **more)


def default_text(name: str) -> str:
    """The default of a setting, for each model where they differ."""
    defaults = {model: field.default for model, field in _SETTINGS[name].items()}
    if name == "model":
        return "default: lookup"
    if len(defaults) < len(CONFIGS):
        return "; ".join(f"{model} only, default: {default}" for model, default in defaults.items())
    if len(set(defaults.values())) == 1:
        return f"default: {next(iter(defaults.values()))}"
    return "default: " + ", ".join(f"{default} ({model})" for model, default in defaults.items())


def train(
    dataset: Annotated[str, typer.Argument(help="Dataset name, folder with train/valid/test, or file of triples.")],
    model: Annotated[str | None, _setting("model", metavar="|".join(CONFIGS))] = None,
    scorer: Annotated[str | None, _setting("scorer", metavar="|".join(SCORERS))] = None,
    dim: Annotated[int | None, _setting("dim")] = None,
    seed: Annotated[int | None, _setting("seed")] = None,
    epochs: Annotated[int | None, _setting("epochs")] = None,
    layers: Annotated[int | None, _setting("layers")] = None,
    features: Annotated[str | None, _setting("features", metavar="random|text|signature|…+…")] = None,
    alpha: Annotated[float | None, _setting("alpha")] = None,
    layer_optimizer: Annotated[str | None, _setting("layer_optimizer", metavar="sgd|adagrad")] = None,
    n_term: Annotated[str | None, _setting("n_term", metavar="exact|paper|none")] = None,
    mask: Annotated[float | None, _setting("mask")] = None,
    draws: Annotated[int | None, _setting("draws")] = None,
    batch_size: Annotated[int | None, _setting("batch_size")] = None,
    optimizer: Annotated[str | None, _setting("optimizer", metavar="adagrad|adam")] = None,
    learning_rate: Annotated[float | None, _setting("learning_rate")] = None,
    n3: Annotated[float | None, _setting("n3")] = None,
    dropout: Annotated[float | None, _setting("dropout")] = None,
    init_scale: Annotated[float | None, _setting("init_scale")] = None,
    validate_every: Annotated[int | None, _setting("validate_every")] = None,
    patience: Annotated[int | None, _setting("patience")] = None,
    accelerator: Annotated[str | None, _setting("accelerator")] = None,
    threads: Annotated[int | None, _setting("threads")] = None,
    memory_budget_mb: Annotated[int | None, _setting("memory_budget_mb")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make.", show_default="runs/DATASET-MODEL-SCORER-SEED")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out if it was interrupted; else start it.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Train a model and keep what was best on validation.

    Example: refactorgnn train countries --scorer complex --dim 128 --out runs/countries
    """
    given = {name: value for name, value in locals().items() if name in _SETTINGS and value is not None}
    run = api.train(**given, out=out, resume=resume, data_root=data_root)
    for note in run.graph.notes:
        say(f"note: {note}")
    summary = {
        "run": str(run.path),
        **{key: run.sidecar[key] for key in ("best_epoch", "valid_mrr", "seconds", "num_parameters")},
    }
    if as_json:
        print_json(summary)
        return
    print_table(f"trained {run.config.model} {run.config.scorer} on {run.graph.name}", ("", ""), list(summary.items()))
    say(f"The run is in {run.path}. Next: refactorgnn evaluate {run.path}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder made by train.")],
    split: Annotated[str, typer.Option(help="The split to ask about.")] = "test",
    graph: Annotated[
        str | None, typer.Option(help="Another graph: dataset name, folder or file.", show_default="the training graph")
    ] = None,
    ranking: Annotated[
        str,
        typer.Option(
            metavar="full|partial|partial-exact",
            help="Rank the truth among all entities, or among 49 random ones, or the exact expectation of that.",
        ),
    ] = "full",
    ties: Annotated[
        str,
        typer.Option(
            metavar="realistic|optimistic|pessimistic",
            help="Where the truth stands among equal scores: in the middle, first or last.",
        ),
    ] = "realistic",
    seed: Annotated[int, typer.Option(help="Seed of the negatives and of the bootstrap.")] = 0,
    per_relation: Annotated[
        bool, typer.Option("--per-relation", help="Also show each relation's metrics; JSON always has them.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Also write the result, with commit, command and hardware, to this file.")
    ] = None,
    device: Device = "cpu",
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained run: filtered ranking in both directions.

    Example: refactorgnn evaluate runs/countries --json
    """
    result = api.evaluate(
        run,
        split=split,
        graph=graph,
        ranking=ranking,  # type: ignore[arg-type]  # checked, with a sentence for the user, by evaluate
        ties=ties,  # type: ignore[arg-type]
        seed=seed,
        device=device,
        data_root=data_root,
        progress=True,
    )
    if record is not None:
        write_text(record, json.dumps(_record(Run.open(run), result, device), indent=2, ensure_ascii=False) + "\n")
        say(f"The record is in {record}.")
    if as_json:
        print_json(result.to_dict())
        return
    _print_evaluation(result, per_relation)


def _print_evaluation(result: Evaluation, per_relation: bool) -> None:
    names = list(result.metrics)
    rows: list[list[object]] = [["all", *result.metrics.values()]]
    rows += [[direction, *metrics.values()] for direction, metrics in result.by_direction.items()]
    about = result.protocol
    title = f"{about['graph']} {about['split']}, {about['ranking']} ranking, {about['ties']} ties"
    print_table(title, ["questions", *names], rows)
    low, high = result.confidence["mrr"]
    say(f"MRR 95 % interval {low:.4f} to {high:.4f}; {2 * about['num_triples']:,} questions in {result.seconds:.1f} s")
    if per_relation:
        relations = [[name, *values.values()] for name, values in result.by_relation.items()]
        print_table("by relation", ["relation", "questions", *names], relations)


def _record(run: Run, result: Evaluation, device: str) -> dict[str, Any]:
    return {
        "result": result.to_dict(),
        "config": run.config.model_dump(),
        # An interrupted run has no summary of its training yet.
        "training": {key: run.sidecar.get(key) for key in ("best_epoch", "valid_mrr", "seconds", "trained_with")},
        "evaluated_with": provenance(device),
    }


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder made by train.")],
    relation: Annotated[str, typer.Option(help="The relation.")],
    head: Annotated[str | None, typer.Option(help="The head, to ask for tails.", show_default=False)] = None,
    tail: Annotated[str | None, typer.Option(help="The tail, to ask for heads.", show_default=False)] = None,
    k: Annotated[int, typer.Option("-k", help="The number of answers.")] = 10,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Also show answers that the graph already has.")
    ] = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Ask a trained run for the most likely heads or tails.

    Example: refactorgnn predict runs/countries --head France --relation borders -k 5
    """
    answers = api.predict(run, relation=relation, head=head, tail=tail, k=k, include_known=include_known, device=device)
    if as_json:
        print_json([answer.to_dict() for answer in answers])
        return
    question = f"({head or '?'}, {relation}, {tail or '?'})"
    rows = [[place, a.label, a.entity, a.score, a.split or "new"] for place, a in enumerate(answers, start=1)]
    print_table(question, ["", "answer", "entity", "score", "found in"], rows)
