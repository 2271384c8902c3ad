"""``refactorgnn predict``."""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson, Device
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.errors import UserError, closest_names
from refactorgnn.predict.predictor import Answer, Predictor, Question

# Of new entities that are named, and how alike a known name must be to be the one that may be meant.
_MOST_NAMED, _ALIKE = 10, 0.8

New = Annotated[
    Path | None,
    typer.Option(
        help="A file of facts about entities never seen, to answer with them in the graph.", show_default=False
    ),
]
NewTexts = Annotated[Path | None, typer.Option(help="Their texts: entity, label, description.", show_default=False)]


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder made by train.")],
    relation: Annotated[str | None, typer.Option(help="The relation.", show_default=False)] = None,
    head: Annotated[str | None, typer.Option(help="The head.", show_default=False)] = None,
    tail: Annotated[str | None, typer.Option(help="The tail.", show_default=False)] = None,
    k: Annotated[int | None, typer.Option("-k", help="The number of answers.", show_default="10")] = None,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Also show answers that the graph already has.")
    ] = False,
    typed: Annotated[
        bool, typer.Option("--typed", help="Only answers seen in that place of the relation in training.")
    ] = False,
    questions: Annotated[
        Path | None,
        typer.Option(help="A TSV, CSV or Parquet file of questions, the unknown left empty.", show_default=False),
    ] = None,
    all_above: Annotated[
        float | None,
        typer.Option(help="Instead of one question: all missing facts at least this probable.", show_default=False),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(
            help="Where the answers to --questions or --all-above go: TSV, CSV or Parquet.", show_default=False
        ),
    ] = None,
    new: New = None,
    new_texts: NewTexts = None,
    new_mode: Annotated[
        str | None,
        typer.Option(
            metavar="exact|local", help="Run all layers again, or compute the new entities only.", show_default="exact"
        ),
    ] = None,
    index: Annotated[
        str,
        typer.Option(
            metavar="auto|exact|ann",
            help="Score all entities, or a shortlist that a vector index finds; auto: the latter from 200,000 on.",
        ),
    ] = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Ask a trained run for the most likely heads, tails or relations: give the two that are known.

    Example: refactorgnn predict runs/countries --head France --relation borders -k 5
    """
    _check_form(relation, head, tail, questions, all_above, answers)
    if all_above is not None and (k is not None or include_known):
        raise UserError("-k and --include-known have no effect with --all-above: leave them out.")
    k = 10 if k is None else k
    if all_above is not None:
        if index == "ann":
            raise UserError("--index ann cannot be used with --all-above, which looks at all entities: leave it out.")
        index = "exact"
    predictor = api.load_predictor(
        run, new=new, new_texts=new_texts, new_mode=new_mode, device=device, index=index, progress=True
    )
    tell_of_new_entities(predictor)
    if questions is not None and answers is not None:
        count = api.predict_file(
            predictor, questions, answers, k=k, include_known=include_known, typed=typed, progress=True
        )
        _report(as_json, answers, count, "answers")
    elif all_above is not None and answers is not None:
        count = api.predict_missing(predictor, answers, all_above, relation=relation, typed=typed, progress=True)
        _report(as_json, answers, count, f"missing facts of probability {all_above:g} or more")
    else:
        found = api.predict(
            predictor, relation=relation, head=head, tail=tail, k=k, include_known=include_known, typed=typed
        )
        if as_json:
            print_json([answer.to_dict() for answer in found])
            return
        _print(str(Question(head, relation, tail)), found, predictor)


def tell_of_new_entities(predictor: Predictor) -> None:
    """Name the entities that were put in, for a known one that is misspelt is a new one; none: say nothing."""
    new = predictor.new_entities
    if not new:
        return
    more = f" and {len(new) - _MOST_NAMED:,} more" if len(new) > _MOST_NAMED else ""
    say(f"{len(new):,} new entit{'y' if len(new) == 1 else 'ies'}: {', '.join(new[:_MOST_NAMED])}{more}.")
    known = list(predictor.graph.entities)[: -len(new)]  # new ones are numbered behind the others
    for name in new[:_MOST_NAMED]:
        for near in closest_names(name, known, 1):
            if SequenceMatcher(None, name.casefold(), near.casefold()).ratio() >= _ALIKE:
                say(f"{name!r} is new; the graph knows {near!r}. If that is meant, correct {name!r} in the file.")


def _check_form(
    relation: str | None,
    head: str | None,
    tail: str | None,
    questions: Path | None,
    all_above: float | None,
    answers: Path | None,
) -> None:
    """Refuse options of two forms at once, or a form without its file."""
    if questions is not None and all_above is not None:
        raise UserError("--questions and --all-above cannot be used together: choose one of them.")
    if questions is None and all_above is None:
        if answers is not None:
            raise UserError("--answers has nothing to hold: give --questions FILE or --all-above PROBABILITY with it.")
        return
    form = "--questions" if questions is not None else "--all-above"
    given = {"--head": head, "--tail": tail, "--relation": relation if questions is not None else None}
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name} cannot be used with {form}: leave one of them out.")
    if answers is None:
        raise UserError(f"{form} needs a file for what is found: add --answers FILE (.tsv, .csv or .parquet).")


def _report(as_json: bool, path: Path, count: int, what: str) -> None:
    if as_json:
        print_json({"answers": str(path), "count": count})
    else:
        say(f"{count:,} {what} are in {path}.")


def _print(question: str, found: list[Answer], predictor: Predictor) -> None:
    calibrated = predictor.calibration
    rows = [
        [place, a.label, a.entity, a.score, *([a.probability] if calibrated else []), a.split or "new"]
        for place, a in enumerate(found, start=1)
    ]
    columns = ["", "answer", "entity", "score", *(["probability"] if calibrated else []), "found in"]
    print_table(question, columns, rows)
    if calibrated:
        say(f"On held-out questions the best answer's probability is off by {calibrated.top_ece:.3f} on average.")
    else:
        say("No probabilities: the graph has too few validation triples to tell.")
