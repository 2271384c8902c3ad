"""``refactorgnn data list | info | convert``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
import typer

from refactorgnn.cli.model import AsJson, DataRoot
from refactorgnn.cli.output import print_json, print_table, say
from refactorgnn.data.datasets import DATASETS
from refactorgnn.data.files import SUPPORTED_SUFFIXES, write_triples
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_graph, save_graph
from refactorgnn.data.rdf import RDF_SUFFIXES
from refactorgnn.data.reach import reach
from refactorgnn.errors import FileError, UserError
from refactorgnn.provenance import provenance

app = typer.Typer(help="Datasets: list the known ones, look into one, convert between formats.", no_args_is_help=True)
Source = Annotated[str, typer.Argument(help="Dataset name, folder with train/valid/test, or file of triples.")]


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the known datasets."""
    if as_json:
        print_json(
            [
                {"name": spec.name, **asdict(spec.counts), "unseen": spec.unseen, "description": spec.description}
                for spec in DATASETS.values()
            ]
        )
        return
    columns = ["name", "entities", "relations", "train", "valid", "test", "description"]
    rows = [[spec.name, *asdict(spec.counts).values(), spec.description] for spec in DATASETS.values()]
    print_table("known datasets", columns, rows)


@app.command()
def info(
    source: Source,
    with_reach: Annotated[
        bool,
        typer.Option("--reach", help="Also count how many known facts join the ends of those in test: how hard it is."),
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Show the sizes of a dataset, and what was noticed while reading it.

    Examples: refactorgnn data info countries; refactorgnn data info fb237_v1_ind --reach
    """
    graph = load_graph(source, data_root=data_root)
    facts = _facts(graph)
    if with_reach and not len(graph.splits.get("test", ())):
        raise UserError(f"{source} has no test split to count the reach of: leave --reach out.")
    shares = [round(share, 4) for share in reach(graph)] if with_reach else []
    if as_json:
        counted = {"reach": shares, "counted_with": provenance()} if with_reach else {}
        print_json({"name": graph.name, **facts, **counted, "notes": list(graph.notes)})
        return
    joined = {f"test facts joined by up to {steps} known": f"{share:.1%}" for steps, share in enumerate(shares, 1)}
    print_table(graph.name, ("", ""), list((facts | joined).items()))
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
        "entities with text": _num_with_text(graph),
    }


def _num_with_text(graph: KnowledgeGraph) -> int:
    """The number of entities that have a label other than their name, or a description."""
    if graph.texts is None:
        return 0
    texts = graph.texts
    has_text = pc.or_(pc.not_equal(texts["label"], texts["entity"]), pc.not_equal(texts["description"], ""))
    return int(pc.sum(has_text).as_py())


@app.command()
def convert(
    source: Source,
    destination: Annotated[
        Path, typer.Argument(help="A new folder (with --to), or a new file for all splits together.")
    ],
    to: Annotated[
        str | None,
        typer.Option(metavar="SUFFIX", help=f"The format of a folder's files: {' '.join(SUPPORTED_SUFFIXES)}"),
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Write a dataset in another format.

    Examples: refactorgnn data convert countries out/ --to .parquet; refactorgnn data convert mine.csv mine.nt
    """
    if destination.is_file():
        raise FileError(destination, "there is a file here already", "choose another name or remove it")
    if destination.is_dir() and any(destination.iterdir()):
        raise FileError(destination, "this folder is not empty", "choose another one")
    is_file = destination.name.lower().endswith(SUPPORTED_SUFFIXES)
    if to is None and (destination.is_dir() or not is_file):
        raise UserError(f"{destination} names no format: add --to with one of {', '.join(SUPPORTED_SUFFIXES)}.")
    graph = load_graph(source, data_root=data_root)
    notes = list(graph.notes)
    if to is None:
        has_room = destination.name.lower().removesuffix(".gz").endswith(RDF_SUFFIXES)
        whole = pa.concat_tables([graph.named_triples(split) for split in graph.splits]).unify_dictionaries()
        write_triples(whole, destination, graph.texts if has_room else None)
        paths = [destination]
        if graph.texts is not None and not has_room:
            notes.append(f"{destination.name} has no room for the entity texts; a folder (--to) or an RDF file has")
    else:
        paths = save_graph(graph, destination, to if to.startswith(".") else f".{to}")
    if as_json:
        print_json({"name": graph.name, "files": [str(path) for path in paths], "notes": notes})
        return
    for note in notes:
        say(f"note: {note}")
    for path in paths:
        say(f"wrote {path}")
