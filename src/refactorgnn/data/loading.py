"""From a dataset name, a folder or a file to a :class:`KnowledgeGraph`, and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from refactorgnn.data.datasets import dataset_folder, find_dataset
from refactorgnn.data.files import (
    SUPPORTED_SUFFIXES,
    TripleFile,
    read_entities,
    read_triples,
    write_entities,
    write_triples,
)
from refactorgnn.data.graph import SPLITS, InductivePair, KnowledgeGraph, graph_from_tables
from refactorgnn.data.splits import split_triples
from refactorgnn.data.texts import attach_texts
from refactorgnn.errors import FileError, UserError, closest_names, unknown_name
from refactorgnn.storage import atomic_folder


def load_graph(
    source: str | Path, *, data_root: str | Path | None = None, seed: int = 0, progress: bool = True
) -> KnowledgeGraph:
    """Load a graph by dataset name, from a folder, or from a single file.

    Args:
        source: The name of a known dataset (``"countries"``, ``"FB15k-237"``, …); or a folder with ``train``, and
            perhaps ``valid``, ``test`` and ``entities``, each in any supported format; or one file of triples, which is
            then split by :func:`~refactorgnn.data.splits.split_triples`.
        data_root: A folder with local copies of the known datasets, used instead of downloading; its folder ``text``
            may hold their entity texts, which are attached if they are there and never downloaded.
        seed: The seed of the split of a single file.
        progress: Show a bar while downloading.

    Example:
        >>> from refactorgnn import load_graph
        >>> load_graph("countries").num_relations > 5
        True
    """
    path = Path(source)
    if path.is_dir():
        return load_folder(path)
    if path.is_file():
        return load_file(path, seed=seed)
    check_source(source)
    spec = find_dataset(str(source))
    graph = load_folder(dataset_folder(spec.name, data_root, progress=progress), name=spec.name)
    return attach_texts(graph, spec, data_root)


def check_source(source: str | Path) -> None:
    """Refuse what :func:`load_graph` could not load by that name, before anything is read or downloaded."""
    path = Path(source)
    if path.exists():
        return
    if _looks_like_path(str(source)):
        raise FileError(path, "there is no such file or folder", "check the path")
    find_dataset(str(source))


def load_pair(source: str, *, data_root: str | Path | None = None, progress: bool = True) -> InductivePair:
    """Load an inductive pair by the name of its training graph, such as ``"fb237_v1"`` or ``"countries_part"``."""
    spec = find_dataset(source)
    if spec.unseen is None:
        raise UserError(f"dataset {spec.name!r} has no unseen graph: choose one whose partner NAME_ind is listed.")
    train = load_graph(spec.name, data_root=data_root, progress=progress)
    return InductivePair(train, load_graph(spec.unseen, data_root=data_root, progress=progress))


def load_folder(folder: str | Path, name: str | None = None) -> KnowledgeGraph:
    """Load ``train``, ``valid``, ``test`` and ``entities`` from a folder; only ``train`` must be there.

    Raises:
        UserError: if a relation of valid or test does not occur in train, for then nothing could be learned about it.
    """
    folder = Path(folder)
    files = {split: _find_file(folder, split) for split in SPLITS}
    if files["train"] is None:
        suffixes = ", ".join(SUPPORTED_SUFFIXES)
        raise FileError(folder, "there is no train file", f"add train with one of the endings {suffixes}")
    read = {split: read_triples(path) for split, path in files.items() if path is not None}
    _refuse_unseen_relations(read, files)
    entity_file = _find_file(folder, "entities")
    texts = read_entities(entity_file) if entity_file is not None else _own_texts(read)
    notes = [f"{split}: {note}" for split, file in read.items() for note in file.notes]
    tables = {split: file.table for split, file in read.items()}
    return graph_from_tables(name or folder.resolve().name, tables, texts, notes)


def load_file(path: str | Path, *, seed: int = 0) -> KnowledgeGraph:
    """Load one file of triples and split it, every entity and relation staying in train."""
    path = Path(path)
    file = read_triples(path)
    whole = graph_from_tables(path.name.split(".")[0], {"all": file.table}, file.texts, file.notes)
    splits = split_triples(whole.triples("all"), seed=seed)
    return KnowledgeGraph(whole.name, whole.entities, whole.relations, splits, whole.texts, whole.notes)


def save_graph(graph: KnowledgeGraph, folder: str | Path, suffix: str = ".tsv") -> list[Path]:
    """Write a graph as a folder that :func:`load_folder` reads back to the same ids; returns the files written.

    They appear all together or not at all.
    """
    folder = Path(folder)
    if suffix not in SUPPORTED_SUFFIXES:
        raise unknown_name("format", suffix, SUPPORTED_SUFFIXES)
    names = {split: f"{split}{suffix}" for split, triples in graph.splits.items() if len(triples)}
    with atomic_folder(folder) as draft:
        for split, name in names.items():
            write_triples(graph.named_triples(split), draft / name)
        if graph.texts is not None:
            names["entities"] = "entities.parquet" if suffix == ".parquet" else "entities.tsv"
            write_entities(graph.texts, draft / names["entities"])
    return [folder / name for name in names.values()]


def _looks_like_path(source: str) -> bool:
    return "/" in source or "\\" in source or source.startswith(".") or source.endswith(tuple(SUPPORTED_SUFFIXES))


def _find_file(folder: Path, stem: str) -> Path | None:
    found = [path for suffix in SUPPORTED_SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise FileError(folder, f"several files claim to be {stem} ({names})", "keep one of them")
    return found[0] if found else None


def _refuse_unseen_relations(read: dict[str, TripleFile], files: dict[str, Path | None]) -> None:
    known = set(_names(read["train"].table))
    for split, file in read.items():
        unseen = [name for name in _names(file.table) if name not in known]
        if not unseen:
            continue
        closest = closest_names(unseen[0], known)
        hint = f" (closest in train: {', '.join(map(repr, closest))})" if closest else ""
        row = file.table["relation"].to_pylist().index(unseen[0])
        first = {name: file.table[name][row].as_py() for name in ("head", "relation", "tail")}
        raise FileError(
            files[split] or split,
            f"relation {unseen[0]!r} does not occur in train{hint}; first seen in the triple "
            f"({first['head']}, {first['relation']}, {first['tail']}), row {row + 1}",
            "add training triples with it or remove it",
        )


def _names(table: pa.Table) -> list[str]:
    names: list[str] = table["relation"].unique().to_pylist()
    return names


def _own_texts(read: dict[str, TripleFile]) -> pa.Table | None:
    tables = [file.texts for file in read.values() if file.texts is not None]
    if not tables:
        return None
    texts = pa.concat_tables(tables)
    seen: dict[str, int] = {}
    for row, entity in enumerate(texts["entity"].to_pylist()):
        seen.setdefault(entity, row)
    return texts.take(list(seen.values()))
