"""``refactorgnn index``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson, Device
from refactorgnn.cli.output import print_json, say
from refactorgnn.predict.run_index import FILE


def index(
    run: Annotated[Path, typer.Argument(help="A run folder made by train.")],
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Make the vector index of a run ahead of the first question; predict --index ann then finds it.

    Example: refactorgnn index runs/countries
    """
    made = api.build_index(run, device=device, progress=True)
    if as_json:
        print_json({"index": str(run / FILE), "num_entities": made.num_entities, **asdict(made.effort)})
        return
    say(
        f"{run / FILE} has {made.num_entities:,} entities; on held-out questions it finds {made.effort.recall:.1%} of "
        f"the ten best answers, with {made.effort.shortlist:,} exact scores a question."
    )
