"""The index of a run: kept in its folder under the hash of its weights and its graph, made again when they change."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import FileError, UserError, unknown_name
from refactorgnn.models.base import DotProductScorer, QueryScorer
from refactorgnn.models.concatenated import dot_product
from refactorgnn.predict.index import NUM_QUESTIONS, Effort, Shell, VectorIndex, faiss_library
from refactorgnn.predict.searching import IndexedScorer
from refactorgnn.runs import Run, load_tensors, save_tensors
from refactorgnn.seeds import combined_seed

FILE = "index.safetensors"
FORMAT = "refactorgnn-index-1"
IndexMode = Literal["auto", "exact", "ann"]
# Below this number of entities one product with all of them takes a few milliseconds: an index is not worth its misses.
FEWEST_ENTITIES = 200_000


def build_index(run: str | Path | Run, *, device: str = "cpu", progress: bool = False) -> VectorIndex:
    """Make the index of a run ahead of the first question, if it is not there; ``refactorgnn index``.

    Args:
        run: The run, or its folder.
        device: Where to compute the states of the entities; the index itself is made by the processor.
        progress: Show a bar.

    Returns:
        The index, also kept as ``index.safetensors`` in the run's folder; ``effort`` tells what it finds.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    bound = run.load_model(device).bind(run.graph)
    return index_of(run, _searchable(bound), progress=progress)


def indexed(
    bound: QueryScorer, graph: KnowledgeGraph, mode: str, *, run: Run | None = None, progress: bool = False
) -> IndexedScorer | None:
    """The model with an index, or None where all entities are to be scored.

    Args:
        bound: The model, bound to ``graph``.
        graph: The graph.
        mode: ``"exact"``: no index. ``"ann"``: an index. ``"auto"``: an index from 200,000 entities on, if the model's
            scores are dot products.
        run: Where the index is kept, if ``graph`` is the run's own.
        progress: Show a bar while it is made.
    """
    if mode not in get_args(IndexMode):
        raise unknown_name("index", mode, get_args(IndexMode))
    is_small = graph.num_entities < FEWEST_ENTITIES
    if mode == "exact" or (mode == "auto" and (is_small or dot_product(bound) is None)):
        return None
    found = _searchable(bound)
    index = index_of(run, found, progress=progress) if run is not None else new_index(found, graph, progress=progress)
    return IndexedScorer(found, index)


def index_of(run: Run, bound: DotProductScorer, *, progress: bool = False) -> VectorIndex:
    """The index in a run's folder if it is of these weights and this graph; else a new one, which is put there.

    Raises:
        FileError: if the file is damaged.
    """
    faiss_library()  # or say at once what is missing
    path, key = run.path / FILE, _key(run)
    if path.exists():
        kept = _read(path, key)
        if kept is not None and kept.num_entities == bound.num_entities:
            return kept
    index = new_index(bound, run.graph, progress=progress)
    try:
        _write(path, key, index)
    except FileError as error:  # the index is there all the same
        warnings.warn(f"{error} The index will have to be made again next time.", stacklevel=3)
    return index


def new_index(bound: DotProductScorer, graph: KnowledgeGraph, *, progress: bool = False) -> VectorIndex:
    """An index of a bound model. Its effort is chosen on questions that the facts answer, as many of each relation.

    What is asked of a rare relation must be found as well, and the largest would drown it.
    """
    assert bound.candidates is not None
    queries = graph.queries("train")
    generator = torch.Generator().manual_seed(combined_seed(0, queries.num_queries))
    chances = 1 / torch.bincount(queries.relations).double()[queries.relations]
    # A draw without repetition by weight: the largest of u^(1/w), in logarithms (Efraimidis and Spirakis, 2006).
    keys = torch.rand(queries.num_queries, generator=generator, dtype=torch.float64).log() / chances
    rows = keys.topk(min(NUM_QUESTIONS, queries.num_queries)).indices
    rows = rows[torch.randperm(len(rows), generator=generator)]
    with torch.no_grad():
        asked = bound.queries(queries.subjects[rows].to(bound.device), queries.relations[rows].to(bound.device))
    return VectorIndex.build(bound.candidates, asked, progress=progress)


def grown_index(before: IndexedScorer, bound: QueryScorer, graph: KnowledgeGraph) -> IndexedScorer:
    """The index after entities were added.

    Where the old candidates have not moved, those that are new are scored exactly beside the index; else, or where
    they have become many, it is built anew.
    """
    found = _searchable(bound)
    assert found.candidates is not None
    has_moved = not torch.equal(found.candidates[: before.index.num_entities], before.candidates)
    index = None if has_moved else before.index.grown(graph.num_entities)
    return IndexedScorer(found, new_index(found, graph) if index is None else index)


def _searchable(bound: QueryScorer) -> DotProductScorer:
    found = dot_product(bound)
    if found is None:
        raise UserError(
            "an index of vectors cannot be used, for the scores of this model are not dot products: use the index "
            "'exact', or a scorer such as distmult, complex or transe."
        )
    return found


def _key(run: Run) -> str:
    """The hash of the weights and of the files of the graph."""
    digest = hashlib.sha256()
    for path in (run.weights_path, *sorted((run.path / "graph").iterdir())):
        digest.update(path.name.encode() + _file_hash(path))
    return digest.hexdigest()


def _file_hash(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**24):
            digest.update(block)
    return digest.digest()


def _write(path: Path, key: str, index: VectorIndex) -> None:
    faiss = faiss_library()
    tensors = {"apart": index.apart}
    for number, shell in enumerate(index.shells):
        tensors[f"shells.{number}.entities"] = torch.from_numpy(shell.entities)
        tensors[f"shells.{number}.scan"] = torch.from_numpy(faiss.serialize_index(shell.scan))
    about = {
        "index_format": FORMAT,
        "key": key,
        "content_sha256": _content_hash(tensors),
        "num_entities": index.num_entities,
        "longest": [shell.longest for shell in index.shells],
        "effort": asdict(index.effort),
    }
    save_tensors(path, tensors, **about)


def _read(path: Path, key: str) -> VectorIndex | None:
    """What :func:`_write` wrote; None if it is of other weights or another graph."""
    try:
        tensors, about = load_tensors(path)
        if about["key"] != key or about["index_format"] != FORMAT:
            return None
        # faiss trusts what it reads: nothing but what was written may reach it.
        if _content_hash(tensors) != about["content_sha256"]:
            raise ValueError("the content is not what was written")
        return _restored(tensors, about)
    except (FileError, KeyError, TypeError, ValueError) as error:
        raise FileError(path, "this index is damaged", "delete the file, it will be made again") from error


def _restored(tensors: dict[str, Tensor], about: dict[str, Any]) -> VectorIndex:
    faiss = faiss_library()
    shells = [
        Shell(
            tensors[f"shells.{number}.entities"].numpy(),
            longest,
            faiss.deserialize_index(tensors[f"shells.{number}.scan"].numpy()),
        )
        for number, longest in enumerate(about["longest"])
    ]
    return VectorIndex(shells, tensors["apart"], about["num_entities"], Effort(**about["effort"]))


def _content_hash(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(json.dumps([name, str(tensors[name].dtype), list(tensors[name].shape)]).encode())
        digest.update(np.ascontiguousarray(tensors[name].numpy()).data)
    return digest.hexdigest()
