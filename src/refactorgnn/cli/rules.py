"""``refactorgnn rules``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson
from refactorgnn.cli.output import print_json, print_table


def rules(
    run: Annotated[Path, typer.Argument(help="A run folder made by train --model rulen, neural-lp or drum.")],
    relation: Annotated[str | None, typer.Option(help="The relation that rules are about.", show_default="all")] = None,
    k: Annotated[int, typer.Option("-k", help="How many rules.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the rules that a run has learned, the most confident first.

    X, A, B and Y are variables. Rules that name entities say nothing about graphs without these.
    Neural-LP and DRUM count nothing: their confidence is their attention to a rule.
    Why a rule says an answer: refactorgnn explain.

    Example: refactorgnn rules runs/rules --relation borders -k 5
    """
    found = api.rules(run, relation=relation, k=k)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    about = "" if relation is None else f" about {relation}"
    title = f"{len(found)} rules{about}"
    if any(one.support is not None for one in found):
        rows = [[one.confidence, one.support, one.groundings, one.text] for one in found]
        print_table(title, ["confidence", "support", "of", "rule"], rows)
    else:
        print_table(title, ["confidence", "rule"], [[one.confidence, one.text] for one in found])
