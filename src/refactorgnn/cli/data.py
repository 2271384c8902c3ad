"""``refactorgnn data list | info | convert``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import torch
import typer

from refactorgnn.cli.model import AsJson, DataRoot
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.data.datasets import DATASETS
from refactorgnn.data.files import SUPPORTED_SUFFIXES, write_triples
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph, save_graph
from refactorgnn.errors import FileError, UserError

app = typer.Typer(help="Datasets: list the known ones, look into one, convert between formats.", no_args_is_help=True)
Source = Annotated[str, typer.Argument(help="Dataset name, folder with train/valid/test, or file of triples.")]


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the known datasets."""
    rows = [
        {"name": spec.name, **asdict(spec.counts), "unseen": spec.unseen or "", "description": spec.description}
        for spec in DATASETS.values()
    ]
    if as_json:
        print_json(rows)
        return
    columns = [name.removeprefix("num_") for name in rows[0]]
    print_table("known datasets", columns, [list(row.values()) for row in rows])


@app.command()
def info(source: Source, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Show the sizes of a dataset, and what was noticed while reading it."""
    graph = load_graph(source, data_root=data_root)
    facts = _facts(graph)
    if as_json:
        print_json({"name": graph.name, **facts, "notes": list(graph.notes)})
        return
    print_table(graph.name, ("", ""), list(facts.items()))
    for note in graph.notes:
        say(f"note: {note}")


def _facts(graph: KnowledgeGraph) -> dict[str, Any]:
    sizes = {split: len(triples) for split, triples in graph.splits.items()}
    heads, _, tails = graph.triples("train").unbind(1)
    seen = torch.zeros(graph.num_entities, dtype=torch.bool)
    seen[heads] = seen[tails] = True
    return {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        **sizes,
        "entities absent from train": int((~seen).sum()),
        "self-loops in train": int((heads == tails).sum()),
        "questions in train": graph.queries("train").num_queries,
        "entities with text": 0 if graph.texts is None else graph.num_entities,
    }


@app.command()
def convert(
    source: Source,
    destination: Annotated[Path, typer.Argument(help="A folder (with --to), or one file for all splits together.")],
    to: Annotated[
        str | None, typer.Option(metavar="SUFFIX", help=f"Format of a folder: {' '.join(SUPPORTED_SUFFIXES)}")
    ] = None,
    data_root: DataRoot = None,
) -> None:
    """Write a dataset in another format.

    Examples: refactorgnn data convert countries out/ --to .parquet; refactorgnn data convert mine.csv mine.nt
    """
    graph = load_graph(source, data_root=data_root)
    if to is None and destination.name.endswith(tuple(SUPPORTED_SUFFIXES)):
        whole = pa.concat_tables([graph.named_triples(split) for split in graph.splits]).unify_dictionaries()
        write_triples(whole, destination, graph.texts)
        paths = [destination]
    elif to is None:
        raise UserError(f"{destination} names no format: add --to with one of {', '.join(SUPPORTED_SUFFIXES)}.")
    else:
        if destination.is_dir() and any(destination.iterdir()):
            raise FileError(destination, "this folder is not empty", "choose another one")
        paths = save_graph(graph, destination, to if to.startswith(".") else f".{to}")
    for note in graph.notes:
        say(f"note: {note}")
    for path in paths:
        say(f"wrote {path}")
