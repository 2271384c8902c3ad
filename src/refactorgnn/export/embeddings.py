"""Embeddings as files that other tools read: Parquet, ``.npz``, ``.npy``; written row by row in bounded memory.

A row of an entity is its state, one of a relation its embedding; reciprocals come behind the relations, their names
ending in ``⁻¹``. Where a model is a weighted sum of several (an ensemble, several draws), a row has the vectors of all
of them side by side, and ``parts`` says which columns are whose.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import FileError, UserError
from refactorgnn.models.base import EmbeddingScorer, QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.ops.chunked import chunks
from refactorgnn.predict.predictor import Predictor
from refactorgnn.progress import Counter, counting
from refactorgnn.runs import Run
from refactorgnn.storage import atomic_path

SUFFIXES = (".parquet", ".npz", ".npy")
# Bytes of rows that are held at once.
_CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Part:
    """One of the models whose vectors stand side by side in a row.

    Args:
        scorer: Its score function.
        weight: The factor of its scores in the sum.
        dim: The width of its entity states.
        relation_dim: The width of its relation embeddings.
    """

    scorer: str
    weight: float
    dim: int
    relation_dim: int


@dataclass(frozen=True)
class _Table:
    """Rows of one kind: names, labels and the tensors whose columns stand side by side."""

    kind: str
    names: pa.Array
    labels: pa.Array
    tensors: Sequence[Tensor]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.names), sum(tensor.shape[1] for tensor in self.tensors)

    def rows(self) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """The vectors, chunk by chunk."""
        for part in chunks(self.shape[0], max(1, _CHUNK_BYTES // (4 * max(1, self.shape[1])))):
            joined = torch.cat([tensor[part] for tensor in self.tensors], dim=1)
            yield part, joined.detach().to("cpu", torch.float32).contiguous().numpy()


def export_embeddings(run: str | Path | Run | Predictor, path: str | Path, *, progress: bool = False) -> list[Path]:
    """Write the embeddings of the entities and relations of a run, with names and labels.

    Args:
        run: The run, its folder, or a predictor made of it (which may have new entities).
        path: A new file. ``.parquet``: columns ``kind``, ``id``, ``name``, ``label``, ``embedding``. ``.npz``: arrays
            ``entities``, ``entity_names``, ``entity_labels``, ``relations``, ``relation_names``, ``parts`` (JSON).
            ``.npy``: the entities alone in this file, and beside it ``NAME.relations.npy`` and ``NAME.json`` with
            names, labels and parts.
        progress: Show a bar.

    Returns:
        The files that were written.

    Example:
        >>> import numpy, refactorgnn
        >>> run = refactorgnn.train("countries", dim=32, epochs=3, out="runs/exported")
        >>> [path.name for path in refactorgnn.export_embeddings(run, "countries.npz")]
        ['countries.npz']
        >>> numpy.load("countries.npz")["entities"].shape == (run.graph.num_entities, 32)
        True
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise FileError(path, f"the ending {path.suffix!r} names no format", f"choose one of {', '.join(SUFFIXES)}")
    files = [path] if suffix != ".npy" else [path, path.with_suffix(".relations.npy"), path.with_suffix(".json")]
    for file in files:
        if file.exists():
            raise FileError(file, "there is something here already", "choose another name or remove it")
    predictor = run if isinstance(run, Predictor) else Predictor.load(run, index="exact")
    parts = _parts(predictor.bound)
    tables = _tables(predictor.graph, [part for _, part in parts])
    about = json.dumps([asdict(_about(weight, part)) for weight, part in parts])
    write = {".parquet": _write_parquet, ".npz": _write_npz, ".npy": _write_npy}[suffix]
    with counting("writing", sum(table.shape[0] for table in tables), enabled=progress) as bar:
        write(path, tables, about, bar)
    return files


def _parts(bound: QueryScorer) -> list[tuple[float, EmbeddingScorer]]:
    """The models with embeddings that a bound model is the weighted sum of."""
    weighted = bound.parts if isinstance(bound, ConcatenatedScorer) else [(1.0, bound)]
    parts = [(weight, part) for weight, part in weighted if isinstance(part, EmbeddingScorer)]
    if len(parts) < len(weighted):
        raise UserError("this model answers without entity embeddings, so there are none to write: choose another run.")
    return parts


def _about(weight: float, part: EmbeddingScorer) -> Part:
    return Part(part.scorer.name, weight, part.states.shape[1], part.relations.shape[1])


def _tables(graph: KnowledgeGraph, parts: Sequence[EmbeddingScorer]) -> list[_Table]:
    labels = graph.entities.names if graph.texts is None else graph.texts["label"].combine_chunks()
    entities = _Table("entity", graph.entities.names, labels, [part.states for part in parts])
    names = pa.array([graph.relation_name(number) for number in range(2 * graph.num_relations)], pa.string())
    return [entities, _Table("relation", names, names, [part.relations for part in parts])]


def _write_parquet(path: Path, tables: Sequence[_Table], about: str, bar: Counter) -> None:
    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("id", pa.int64()),
            ("name", pa.string()),
            ("label", pa.string()),
            ("embedding", pa.list_(pa.float32())),
        ],
        metadata={"parts": about},
    )
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for table in tables:
            for part, rows in table.rows():
                ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
                columns = [
                    pa.array([table.kind] * len(rows)),
                    pa.array(np.arange(part.start, part.stop)),
                    table.names[part.start : part.stop],
                    table.labels[part.start : part.stop],
                    pa.ListArray.from_arrays(ends, rows.reshape(-1)),
                ]
                writer.write_table(pa.table(columns, schema=schema))
                bar.advance(len(rows))


def _write_npz(path: Path, tables: Sequence[_Table], about: str, bar: Counter) -> None:
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, write: Callable[[IO[bytes]], None]) -> None:
            # Without force_zip64 a member that turns out larger than 2 GiB could not be finished.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                write(stream)

        entities, relations = tables
        add("entities", lambda stream: _write_matrix(stream, entities, bar))
        add("relations", lambda stream: _write_matrix(stream, relations, bar))
        for name, texts in (
            ("entity_names", entities.names),
            ("entity_labels", entities.labels),
            ("relation_names", relations.names),
            ("parts", pa.array([about])),
        ):
            add(name, lambda stream, texts=texts: _write_texts(stream, texts))  # type: ignore[misc]


def _write_npy(path: Path, tables: Sequence[_Table], about: str, bar: Counter) -> None:
    entities, relations = tables
    with ExitStack() as stack:  # no file appears before all are written
        for table, file in ((relations, path.with_suffix(".relations.npy")), (entities, path)):
            temporary = stack.enter_context(atomic_path(file))
            with temporary.open("wb") as stream:
                _write_matrix(stream, table, bar)
        names = {
            "entity_names": entities.names.to_pylist(),
            "entity_labels": entities.labels.to_pylist(),
            "relation_names": relations.names.to_pylist(),
            "parts": json.loads(about),
        }
        temporary = stack.enter_context(atomic_path(path.with_suffix(".json")))
        temporary.write_text(json.dumps(names, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_matrix(stream: IO[bytes], table: _Table, bar: Counter) -> None:
    _write_header(stream, np.dtype(np.float32), table.shape)
    for _, rows in table.rows():
        stream.write(rows.tobytes())
        bar.advance(len(rows))


def _write_texts(stream: IO[bytes], texts: pa.Array) -> None:
    """Strings of NumPy's fixed width, that of the longest."""
    dtype = np.dtype(f"<U{max(1, pc.max(pc.utf8_length(texts)).as_py() or 1)}")
    _write_header(stream, dtype, (len(texts),))
    for part in chunks(len(texts), max(1, _CHUNK_BYTES // dtype.itemsize)):
        stream.write(np.array(texts[part.start : part.stop].to_pylist(), dtype=dtype).tobytes())


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
