"""``refactorgnn explain``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson, Device
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.cli.predict import New, NewTexts, tell_of_new_entities
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.predict.explaining import Explanation, Term

_NUM_COUNTERFACTUALS = 5


def explain(
    run: Annotated[Path, typer.Argument(help="A run folder made by train.")],
    head: Annotated[str, typer.Option(help="The head.")],
    relation: Annotated[str, typer.Option(help="The relation.")],
    tail: Annotated[str, typer.Option(help="The tail.")],
    depth: Annotated[int, typer.Option(help="How many layers to split, from the last one back.")] = 1,
    counterfactual: Annotated[
        bool,
        typer.Option(
            "--counterfactual",
            help=f"Also take {_NUM_COUNTERFACTUALS} facts away, one at a time, and run the model again: those that "
            "contribute most or, where a model does not say, those between head and tail first.",
        ),
    ] = False,
    rows: Annotated[int, typer.Option(min=1, help="The most rows of a table; JSON has all.")] = 15,
    new: New = None,
    new_texts: NewTexts = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Say why a triple has its score: which facts, how much each.

    Example: refactorgnn explain runs/part --head France --relation borders --tail Spain --counterfactual
    """
    predictor = api.load_predictor(run, new=new, new_texts=new_texts, device=device, index="exact")
    tell_of_new_entities(predictor)
    number = _NUM_COUNTERFACTUALS if counterfactual else 0
    reasons = api.explain(predictor, head=head, relation=relation, tail=tail, depth=depth, num_counterfactuals=number)
    if as_json:
        print_json(reasons.to_dict())
        return
    _print(reasons, predictor.graph, rows)


def _print(reasons: Explanation, graph: KnowledgeGraph, most: int) -> None:
    head, relation, tail = _labels(graph, reasons.triple)
    say(
        f"({head}, {relation}, {tail}) scores {reasons.score:.4f}; among what is not known, the tail ranks "
        f"{reasons.tail_rank:g} and the head {reasons.head_rank:g}."
    )
    if reasons.note:
        say(f"{reasons.note[0].upper()}{reasons.note[1:]}.")
        if not (reasons.rules or reasons.counterfactuals):
            say("--counterfactual takes facts away and shows what becomes of the score.")
    if reasons.rules:
        print_table(
            f"rules that say {tail}",
            ["confidence", "support", "of", "rule", "because"],
            [
                [
                    one.confidence,
                    one.support,
                    one.groundings,
                    one.rule,
                    "; ".join(_fact(graph, fact) for fact in one.path),
                ]
                for one in reasons.rules[:most]
            ],
        )
    for terms, name in ((reasons.by_tail, tail), (reasons.by_head, head)):
        if terms:
            print_table(
                f"the score by what made the state of {name}",
                ["contribution", "from", "layer"],
                _rows(terms, graph, most),
            )
    if reasons.counterfactuals:
        print_table(
            "without the fact, all layers run again",
            ["fact", "score", "change", "tail rank", "head rank"],
            [
                [
                    _fact(graph, one.fact),
                    one.score,
                    one.score - reasons.score,
                    f"{one.tail_rank:g}",
                    f"{one.head_rank:g}",
                ]
                for one in reasons.counterfactuals
            ],
        )


def _rows(terms: Sequence[Term], graph: KnowledgeGraph, most: int) -> list[list[object]]:
    rows: list[list[object]] = [
        [term.contribution, term.kind if term.fact is None else _fact(graph, term.fact), _layer(term)]
        for term in terms[:most]
    ]
    if len(terms) > most:
        rest = sum(term.contribution for term in terms[most:])
        rows.append([rest, f"{len(terms) - most} others together", ""])
    return [*rows, [sum(term.contribution for term in terms), "the score", ""]]


def _fact(graph: KnowledgeGraph, fact: tuple[str, str, str]) -> str:
    return " — ".join(_labels(graph, fact))


def _labels(graph: KnowledgeGraph, triple: tuple[str, str, str]) -> tuple[str, str, str]:
    head, relation, tail = triple
    return graph.label(graph.entities.id(head)), relation, graph.label(graph.entities.id(tail))


def _layer(term: Term) -> str:
    if term.kind == "link":
        return "none: a link of the two"
    return {0: "", 1: "last"}.get(term.layers_back, f"{term.layers_back - 1} before the last")
