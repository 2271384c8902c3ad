"""Entity texts: those kept beside the known datasets, and what stands in for them where there are none.

A data root keeps them as ``text/NAME.tsv`` or ``text/NAME.tsv.gz`` (columns ``entity``, ``label``, ``description``);
``benchmarks.json`` says which ``NAME`` belongs to which dataset. They come as local copies only: no address that may be
downloaded from is recorded for them so far, unlike for the triples.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from refactorgnn.data.datasets import DATA_VARIABLE, DatasetSpec, local_root
from refactorgnn.data.files import read_entities
from refactorgnn.data.graph import KnowledgeGraph, align_texts

TEXT_FOLDER = "text"
_ENDINGS = ("tsv", "tsv.gz")


class EntityText(NamedTuple):
    """What is said of one entity: a label, and a description that may be empty."""

    label: str
    description: str


def attach_texts(graph: KnowledgeGraph, spec: DatasetSpec, data_root: str | Path | None = None) -> KnowledgeGraph:
    """The graph with the texts that the data root keeps for its dataset.

    A graph that brought texts of its own keeps those. Where the file is missing the graph stays without texts, and a
    note says where they are looked for: texts are a help, never a condition. The note names no folder of this machine,
    for notes are copied into the records of runs.

    Args:
        graph: The graph as read from its triples.
        spec: The dataset it is.
        data_root: As for :func:`~refactorgnn.data.datasets.dataset_folder`.
    """
    if spec.texts is None or graph.texts is not None:
        return graph
    path = text_file(spec.texts, data_root)
    if path is None:
        place = f"{TEXT_FOLDER}/{spec.texts}.tsv or .tsv.gz in the folder of --data-root or {DATA_VARIABLE}"
        return replace(graph, notes=(*graph.notes, f"no entity texts were found; they are looked for as {place}"))
    return replace(graph, texts=align_texts(graph.entities, _rows_of(graph.entities.names, read_entities(path))))


def text_file(name: str, data_root: str | Path | None = None) -> Path | None:
    """The file of entity texts of that name in the data root, or None if there is no root or no such file."""
    root = local_root(data_root)
    if root is None:
        return None
    return next((path for end in _ENDINGS if (path := root / TEXT_FOLDER / f"{name}.{end}").is_file()), None)


def readable_name(name: str) -> EntityText:
    """A label and description made of the bare name of an entity, for want of a text.

    The label is the last part after ``:`` or ``/`` (in an IRI also ``#``), with underscores as blanks. A name of three
    parts or more with colons between, as in NELL, says what kind of thing it is just before that. A name with blanks in
    it was written for people and stays as it is.

    Example:
        >>> readable_name("concept:sportsteam:ravens")
        EntityText(label='ravens', description='sportsteam')
        >>> readable_name("http://dbpedia.org/resource/New_York").label
        'New York'
    """
    if re.search(r"\s", name):
        return EntityText(name, "")
    separators = "[:/#]" if "://" in name else "[:/]"
    parts = [words for part in re.split(separators, name) if (words := part.replace("_", " ").strip())]
    if not parts:
        return EntityText(name, "")
    says_its_kind = "/" not in name and len(parts) >= 3
    return EntityText(parts[-1], parts[-2] if says_its_kind else "")


def _rows_of(entities: pa.Array, texts: pa.Table) -> pa.Table:
    """The rows of the given entities: a small graph should not drag along the texts of the whole it was cut from."""
    return texts.filter(pc.is_in(texts["entity"], value_set=entities)).combine_chunks()
