"""``refactorgnn ensemble``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson, Device
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.errors import UserError
from refactorgnn.runs import Run
from refactorgnn.training.member_choice import DEFAULT_ROUNDS


def ensemble(
    runs: Annotated[list[Path], typer.Argument(help="Finished runs, trained on the same graph.")],
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    weights: Annotated[
        str | None,
        typer.Option(metavar="W1,W2,…", help="A weight for each run.", show_default="chosen on validation"),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="The most rounds of the choice.", show_default=str(DEFAULT_ROUNDS))
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Make one model of several runs, whose weighted scores add up.

    Members and weights are chosen by the MRR on the validation split of the training graph, unless weights are given.

    Example: refactorgnn ensemble runs/a runs/b runs/c --out runs/together
    """
    numbers = None if weights is None else _numbers(weights)
    run = api.ensemble(runs, out=out, weights=numbers, rounds=rounds, device=device)
    if as_json:
        kept = ("valid_mrr", "candidates", "steps", "seconds", "num_parameters")
        print_json({"run": str(run.path)} | {key: run.sidecar[key] for key in kept})
        return
    _print(run)
    say(f"The ensemble is in {run.path}; it does not need the other runs. Next: refactorgnn evaluate {run.path}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise UserError(
            f"--weights {text} cannot be read: give a number for each run, with commas between them, such as 1,0.5."
        ) from error


def _print(run: Run) -> None:
    if run.sidecar["steps"]:
        steps = [
            [number, _mixture(step["weights"]), step["valid_mrr"]] for number, step in enumerate(run.sidecar["steps"])
        ]
        print_table("choice on validation", ["round", "weights", "valid MRR"], steps)
    rows = [
        [about["run"], about["model"], about["scorer"] or "", about["weight"], about["valid_mrr"]]
        for about in run.sidecar["candidates"]
    ]
    rows.append([str(run.path), "ensemble", "", sum(row[3] for row in rows), run.sidecar["valid_mrr"]])
    print_table(f"ensemble on {run.graph.name}", ["run", "model", "scorer", "weight", "valid MRR"], rows)


def _mixture(weights: list[float]) -> str:
    return " : ".join(f"{weight:.3g}" for weight in weights)
