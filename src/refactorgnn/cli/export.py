"""``refactorgnn export embeddings | huggingface``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.cli.model import AsJson
from refactorgnn.cli.output import print_json, say

app = typer.Typer(help="Write embeddings or a whole model for other tools.", no_args_is_help=True)
RunFolder = Annotated[Path, typer.Argument(help="A run folder made by train.")]


@app.command()
def embeddings(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="A new file: .parquet, .npz or .npy.")],
    as_json: AsJson = False,
) -> None:
    """Write the embeddings of entities and relations, with names and labels.

    Example: refactorgnn export embeddings runs/countries --out countries.parquet
    """
    _report(api.export_embeddings(run, out, progress=True), as_json)


@app.command()
def huggingface(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="A new folder.")],
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure the test split for the model card.")
    ] = True,
    licence: Annotated[
        str | None, typer.Option(help="The model's licence as the Hub writes it: mit, cc-by-4.0, …", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the model in the layout of the Hugging Face Hub: safetensors, config.json, model card.

    Example: refactorgnn export huggingface runs/countries --out countries-distmult
    """
    folder = api.save_pretrained(run, out, measure=measure, licence=licence, progress=True)
    _report(sorted(path for path in folder.rglob("*") if path.is_file()), as_json)


def _report(files: list[Path], as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in files]})
        return
    for path in files:
        say(f"wrote {path}")
