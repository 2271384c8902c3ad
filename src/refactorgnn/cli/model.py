"""``refactorgnn evaluate``, and the options that commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from refactorgnn import api
from refactorgnn.cli.output import names_in, print_json, print_table, say
from refactorgnn.evaluation.protocols import Evaluation
from refactorgnn.provenance import provenance
from refactorgnn.runs import Run
from refactorgnn.storage import write_text

Dataset = Annotated[
    str | None,
    typer.Argument(
        help="Dataset name, folder with train/valid/test, or file of triples; --config may name it instead.",
        show_default=False,
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder with local copies of the known datasets (or set REFACTORGNN_DATA).", show_default=False),
]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, …")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    filter_splits: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="A,B,…",
            help="Splits whose facts are no mistakes; published figures may know fewer, such as train alone.",
            show_default="all",
        ),
    ] = None,
    known_splits: Annotated[
        str,
        typer.Option(
            "--known",
            metavar="A,B,…",
            help="Splits whose facts the model may use to answer; published figures may be of models that know more.",
        ),
    ] = "train",
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
        filter_splits=names_in(filter_splits),
        known_splits=names_in(known_splits) or (),
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
    title += f", filtered by {about['filter']}"
    if about["known"] != "train":
        title += f", knowing {about['known']}"
    print_table(title, ["questions", *names], rows)
    low, high = result.confidence["mrr"]
    say(f"MRR 95 % interval {low:.4f} to {high:.4f}; {2 * about['num_triples']:,} questions in {result.seconds:.1f} s")
    if seen := about.get("num_seen_in_training"):
        say(
            f"{seen:,} of the {about['num_triples']:,} facts asked about are among those that this run was trained on "
            "or validated by: its figures are not about facts it has not seen."
        )
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
