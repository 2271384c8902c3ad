"""Reading and writing files of triples and of entity texts, in the format that the file's name says.

=====================  ==================================================================
``.tsv``, ``.txt``     tab separated, no quoting (``.txt`` also by commas or blanks)
``.csv``               comma or semicolon separated, quoted as in RFC 4180
``.parquet``           columns of strings or integers
``.nt .ttl .n3``       RDF; needs the extra ``refactorgnn[rdf]``
=====================  ==================================================================

Text and RDF files may be compressed (``.tsv.gz``). Every problem is a
:class:`~refactorgnn.errors.FileError` that names the file, the line and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from refactorgnn.data.columns import ENTITIES, QUESTIONS, TRIPLES, encode
from refactorgnn.data.content import check_is_file, open_output, read_bytes
from refactorgnn.data.rdf import RDF_SUFFIXES, read_rdf, write_rdf
from refactorgnn.data.tabular import (
    TEXT_SUFFIXES,
    check_writable,
    read_parquet,
    read_text,
    text_dialect,
    write_text,
)
from refactorgnn.errors import FileError, UserError
from refactorgnn.storage import atomic_path

TABLE_SUFFIXES = (*(suffix + end for suffix in TEXT_SUFFIXES for end in ("", ".gz")), ".parquet")
SUPPORTED_SUFFIXES = (*TABLE_SUFFIXES, *(suffix + end for suffix in RDF_SUFFIXES for end in ("", ".gz")))


@dataclass(frozen=True)
class TripleFile:
    """What a file of triples holds.

    Attributes:
        table: Columns ``head``, ``relation`` and ``tail``, each one chunk of ``dictionary<int32, string>``
            whose values stand in the order of their first appearance; rows in file order, duplicates kept.
        texts: Columns ``entity``, ``label`` and ``description`` (strings), if the file itself carries texts,
            as RDF may. Its entities need not all occur in ``table``.
        notes: Remarks for people, such as "skipped 12 triples whose object is a literal".
    """

    table: pa.Table
    texts: pa.Table | None = None
    notes: tuple[str, ...] = ()


def read_triples(path: str | Path) -> TripleFile:
    """Read a file of triples in the format that its name says.

    A table may have a header, with its columns in any order and under any of the usual names (``subject``,
    ``predicate``, ``object``; ``source``, ``target``; …), and then further columns, which are ignored.
    Without a header it must have exactly three columns. Labels are kept as they are; blank lines are ignored.
    """
    path = Path(path)
    suffix = _format_of(path, SUPPORTED_SUFFIXES)
    if suffix == ".parquet":
        return TripleFile(read_parquet(path, TRIPLES))
    content = read_bytes(path)
    if suffix in RDF_SUFFIXES:
        return TripleFile(*read_rdf(path, content, suffix))
    return TripleFile(read_text(path, content, suffix, TRIPLES))


def read_entities(path: str | Path) -> pa.Table:
    """Read a table of entity texts: columns ``entity``, ``label`` and ``description``, all strings.

    A missing label is the entity itself, a missing description is empty; an entity may occur only once.
    """
    path = Path(path)
    suffix = _format_of(path, TABLE_SUFFIXES)
    if suffix == ".parquet":
        table = read_parquet(path, ENTITIES)
    else:
        table = read_text(path, read_bytes(path), suffix, ENTITIES)
    return _fill_texts(table)


def read_questions(path: str | Path) -> pa.Table:
    """Read a table of questions: columns ``head``, ``relation`` and ``tail``, strings, empty where unknown."""
    path = Path(path)
    suffix = _format_of(path, TABLE_SUFFIXES)
    if suffix == ".parquet":
        return read_parquet(path, QUESTIONS)
    return read_text(path, read_bytes(path), suffix, QUESTIONS)


class TableWriter:
    """Writes a table piece by piece, in the format that the file's name says; the file appears when it is complete.

    Args:
        path: The file; an existing one is replaced.
        schema: The columns. In text files numbers are written in decimal and a missing value as nothing.
    """

    def __init__(self, path: str | Path, schema: pa.Schema) -> None:
        self.path = Path(path)
        self.schema = schema
        self._suffix = _format_of(self.path, TABLE_SUFFIXES, writing=True)
        self._stack = ExitStack()
        self._write: Callable[[pa.Table], None] | None = None

    def __enter__(self) -> TableWriter:
        if self._suffix == ".parquet":
            temporary = self._stack.enter_context(atomic_path(self.path))
            self._write = self._stack.enter_context(pq.ParquetWriter(temporary, self.schema)).write_table
            return self
        stream, dialect = self._stack.enter_context(open_output(self.path)), text_dialect(self._suffix)
        stream.write((dialect.delimiter.join(self.schema.names) + "\n").encode())

        def write(table: pa.Table) -> None:
            encoded = pa.table({name: encode(_as_text(table.column(name))) for name in table.column_names})
            check_writable(self.path, encoded, dialect)
            write_text(stream, encoded, dialect, header=False)

        self._write = write
        return self

    def write(self, rows: Mapping[str, Sequence[object]]) -> None:
        """Add rows, given column by column."""
        assert self._write is not None, "a writer is used in a with statement"
        table = pa.table(dict(rows), schema=self.schema)
        if table.num_rows:
            self._write(table)

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(column.cast(pa.string()), "")


def write_triples(table: pa.Table, path: str | Path, texts: pa.Table | None = None) -> None:
    """Write the columns ``head``, ``relation``, ``tail`` of a table in the format that the file's name says.

    The file appears complete or not at all, the same table always gives the same bytes, and
    :func:`read_triples` reads back the same labels.

    Args:
        table: The triples.
        path: The file; an existing one is replaced.
        texts: Columns ``entity``, ``label``, ``description``; only RDF files have a place for them.

    Raises:
        UserError: if the format cannot hold a label, such as one with a tab in a TSV file.
    """
    path = Path(path)
    suffix = _format_of(path, SUPPORTED_SUFFIXES, writing=True)
    encoded = _encoded(table, TRIPLES.names, TRIPLES.required)
    if suffix not in RDF_SUFFIXES:
        if texts is not None:
            raise UserError(f"{path.name} cannot hold texts: write them with write_entities, or choose an RDF format.")
        _write_table(encoded, path, suffix)
        return
    filled = None if texts is None else _fill_texts(_strings(texts, ENTITIES.required))
    with open_output(path) as stream:
        write_rdf(stream, encoded, filled, suffix)


def write_entities(table: pa.Table, path: str | Path) -> None:
    """Write the columns ``entity``, ``label``, ``description``, as :func:`write_triples` writes triples."""
    path = Path(path)
    suffix = _format_of(path, TABLE_SUFFIXES, writing=True)
    filled = _fill_texts(_strings(table, ENTITIES.required))
    _write_table(_encoded(filled, ENTITIES.names, ENTITIES.required), path, suffix)


def _write_table(encoded: pa.Table, path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        with atomic_path(path) as temporary:
            pq.write_table(encoded, temporary)
        return
    dialect = text_dialect(suffix)
    check_writable(path, encoded, dialect)
    with open_output(path) as stream:
        write_text(stream, encoded, dialect)


def _format_of(path: Path, supported: Sequence[str], *, writing: bool = False) -> str:
    """Return the suffix that says the format, without ``.gz``, once the path has been found fit."""
    if path.is_dir():
        raise FileError(path, "is a folder, and a file was expected", "give the path of a file")
    name = path.name.lower()
    if not name.endswith(tuple(supported)):
        ending = "".join(path.suffixes[-2:]) or "no ending"
        raise FileError(path, f"unknown file format ({ending})", f"use one of {', '.join(supported)}")
    if not writing:
        check_is_file(path)
    return Path(name.removesuffix(".gz")).suffix


def _strings(table: pa.Table, required: Sequence[str]) -> pa.Table:
    """Return the table with its columns as strings, after checking that the required ones are there."""
    for name in required:
        if name not in table.column_names:
            raise UserError(f"the table has no column {name!r}: its columns are {', '.join(table.column_names)}.")
    return pa.table({name: table.column(name).cast(pa.string()) for name in table.column_names})


def _encoded(table: pa.Table, names: Sequence[str], required: Sequence[str]) -> pa.Table:
    """Return the named columns in encoded form; a required column without a value could not be read back."""
    plain = _strings(table, names)
    for name in required:
        row = pc.index(pc.equal(pc.fill_null(plain.column(name), ""), ""), True).as_py()
        if row >= 0:
            raise UserError(f"the {name} of row {row + 1} is empty: every triple and entity needs its labels.")
    return pa.table({name: encode(plain.column(name)) for name in names})


def _fill_texts(table: pa.Table) -> pa.Table:
    """Entity, label and description, the entity standing in for a missing label."""
    entity = table.column("entity")
    columns = {"entity": entity}
    for name, default in (("label", entity), ("description", pa.scalar(""))):
        given = table.column(name) if name in table.column_names else pa.nulls(table.num_rows, pa.string())
        filled = pc.fill_null(given, "")
        columns[name] = pc.if_else(pc.equal(filled, ""), default, filled)
    return pa.table(columns).combine_chunks()
