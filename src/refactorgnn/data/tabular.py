"""Tables of labels in delimited text (TSV, CSV) and Parquet.

Delimited text is parsed by Arrow, which is fast but forgets line numbers. So the good path never looks at
lines, and when something is wrong a plain Python reader goes through the file once more to say where.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from refactorgnn.data.columns import Layout, encode, single_chunk
from refactorgnn.data.content import check_text
from refactorgnn.errors import FileError, UserError

TEXT_SUFFIXES = (".tsv", ".txt", ".csv")
_BLOCK_BYTES = 1 << 22
_ROWS_PER_WRITE = 1 << 16
# What text cannot hold, the last only without quotation marks.
_UNWRITABLE = (
    ("\0", "a NUL character", "write a .parquet file instead"),
    ("[\t\r\n]", "a tab or a line break", "write a .csv or .parquet file instead"),
)


@dataclass(frozen=True)
class Dialect:
    """How the fields of a line are told apart."""

    delimiter: str
    quoted: bool
    words: str

    def split(self, line: str) -> list[str]:
        """Return the fields of one line."""
        if self.delimiter == " ":
            line = _single_blanks(line.encode()).decode()
        if not self.quoted:
            return line.split(self.delimiter)
        try:
            return next(csv.reader([line], delimiter=self.delimiter), [])
        except csv.Error:  # a line too long to be a row
            return [line]


_TAB = Dialect("\t", quoted=False, words="tabs")
_BLANKS = Dialect(" ", quoted=False, words="blanks")
_COMMA = Dialect(",", quoted=True, words="commas")
_SEMICOLON = Dialect(";", quoted=True, words="semicolons")
_QUOTED_TAB = Dialect("\t", quoted=True, words="tabs")


class Record(NamedTuple):
    """One row of a text file: its 1-based first and last line, and its fields."""

    line: int
    last_line: int
    fields: list[str]


@dataclass(frozen=True)
class TextFile:
    """A delimited text file, ready to be parsed: its content, dialect, and what its first row says."""

    path: Path
    content: bytes
    dialect: Dialect
    layout: Layout
    positions: dict[str, int]
    width: int
    has_header: bool

    def records(self) -> Iterator[Record]:
        """Return the rows below the header; slow, and the only place that knows line numbers."""
        return islice(_records(self.path, self.content, self.dialect), int(self.has_header), None)

    def body(self) -> pa.Buffer:
        """Return the bytes below the header, without copying them."""
        start = 0
        if self.has_header:
            header = next(_records(self.path, self.content, self.dialect))
            lines = islice(_text_lines(self.content, self.dialect), header.last_line)
            start = sum(len(line.encode()) for line in lines)
        if self.content.startswith(codecs.BOM_UTF8, start):
            # Part of a label, which Arrow would take for a byte-order mark: hide it behind a blank line.
            return pa.py_buffer(b"\n" + self.content[start:])
        return pa.py_buffer(self.content).slice(start)


def read_text(path: Path, content: bytes, suffix: str, layout: Layout) -> pa.Table:
    """Read the columns of ``layout`` from delimited text; optional ones that it lacks are left out."""
    source = _open_text(path, check_text(path, content), suffix, layout)
    body = source.body()
    if body.size == 0:
        raise _no_rows(path, layout)
    # Arrow takes everything after a quotation mark that is never closed for one field, without a word.
    if source.dialect.quoted and source.content.count(b'"') % 2:
        _find_fault(source)
    table = _parse(source, body)
    if table.num_rows == 0:
        raise _no_rows(path, layout)
    if any(_has_empty(table.column(name)) for name in layout.required):
        _find_fault(source)
    if layout.unique is not None and pc.count_distinct(table.column(layout.unique)).as_py() < table.num_rows:
        _find_fault(source)
    return table


def _open_text(path: Path, content: bytes, suffix: str, layout: Layout) -> TextFile:
    dialect = _choose_dialect(content, suffix, layout)
    content = _plain_lines(content, dialect)
    first = next(_records(path, content, dialect), Record(1, 1, [""]))
    width = len(first.fields)
    if layout.is_header(first.fields):
        positions = layout.locate(path, first.fields, line=first.line)
        return TextFile(path, content, dialect, layout, positions, width, has_header=True)
    if width not in layout.widths:
        problem = f"{_fields(width)} where {layout.widths[-1]} are expected"
        remedy = f"separate them with {dialect.words}, or name the columns in a header: {', '.join(layout.names)}"
        raise FileError(path, problem, remedy, line=first.line)
    positions = {name: position for position, name in enumerate(layout.names[:width])}
    return TextFile(path, content, dialect, layout, positions, width, has_header=False)


def _choose_dialect(content: bytes, suffix: str, layout: Layout) -> Dialect:
    """Return the first of the suffix's dialects by which the first line makes a header or a proper row."""
    if suffix == ".tsv":
        return _TAB
    first = next((line for line in _text_lines(content, _COMMA) if line.strip()), "").rstrip("\r\n")
    if suffix == ".csv":
        usual, choices = _COMMA, [_COMMA, _SEMICOLON, _QUOTED_TAB]
    elif "\t" in first:
        return _TAB
    else:
        usual, choices = _TAB, [_COMMA, _SEMICOLON]
        if layout.blanks:
            choices.append(_BLANKS)
    for dialect in choices:
        fields = dialect.split(first)
        if len(fields) > 1 and (layout.is_header(fields) or len(fields) in layout.widths):
            return dialect
    return usual


def _plain_lines(content: bytes, dialect: Dialect) -> bytes:
    r"""Return unquoted text with ``\n`` after each line, and single blanks where blanks separate.

    Quoted text stays as it is: a label between quotation marks may contain line breaks of any kind.
    """
    if not dialect.quoted and b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if dialect.delimiter == " ":
        content = _single_blanks(content)
    return content


def _single_blanks(content: bytes) -> bytes:
    return re.sub(rb"(?m)^ | $", b"", re.sub(rb"[ \t]+", b" ", content))


def _text_lines(content: bytes, dialect: Dialect) -> Iterator[str]:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="" if dialect.quoted else "\n")


def _records(path: Path, content: bytes, dialect: Dialect) -> Iterator[Record]:
    """Yield the rows of a text file that are not blank."""
    lines = _text_lines(content, dialect)
    if not dialect.quoted:
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip("\n").split(dialect.delimiter)
            if len(fields) > 1 or fields[0].strip():
                yield Record(number, number, fields)
        return
    reader = csv.reader(lines, delimiter=dialect.delimiter, strict=True)
    while True:
        line_number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = "a quotation mark opens a field and is not closed before the next separator"
            remedy = "close it, and write a quotation mark inside a quoted field twice"
            raise FileError(path, problem, remedy, line=line_number) from error
        if len(fields) > 1 or (fields and fields[0].strip()):
            yield Record(line_number, reader.line_num, fields)


def _parse(source: TextFile, body: pa.Buffer) -> pa.Table:
    """Return the table, or a :class:`FileError` with the line that Arrow stumbled on."""
    try:
        table = _parse_blocks(source, body, _BLOCK_BYTES)
    except pa.ArrowInvalid:
        _find_fault(source)
        # No line is at fault, so one of them is longer than a block: parse it all as one.
        try:
            table = _parse_blocks(source, body, body.size + 1)
        except pa.ArrowInvalid as error:
            remedy = f"check that its fields are separated by {source.dialect.words}"
            raise FileError(source.path, f"cannot be parsed ({error})", remedy) from error
    if pa.types.is_dictionary(source.layout.column_type):
        return pa.table({name: single_chunk(table.column(name)) for name in table.column_names})
    return table.combine_chunks()


def _parse_blocks(source: TextFile, body: pa.Buffer, block_bytes: int) -> pa.Table:
    names = [str(position) for position in range(source.width)]
    wanted = [str(position) for position in source.positions.values()]
    quoted = source.dialect.quoted
    table = pa_csv.read_csv(
        pa.BufferReader(body),
        read_options=pa_csv.ReadOptions(column_names=names, block_size=block_bytes),
        parse_options=pa_csv.ParseOptions(
            delimiter=source.dialect.delimiter,
            quote_char='"' if quoted else False,
            double_quote=quoted,
            newlines_in_values=quoted and b'"' in source.content,
            invalid_row_handler=_skip_blank,
        ),
        convert_options=pa_csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, source.layout.column_type),
            check_utf8=False,  # done before
        ),
    )
    return table.rename_columns(list(source.positions))


def _skip_blank(row: pa_csv.InvalidRow) -> str:
    return "error" if row.text.strip() else "skip"


def _find_fault(source: TextFile) -> None:
    """Raise a :class:`FileError` for the first row that breaks a rule; return if there is none."""
    seen: dict[str, int] = {}
    for line, _, fields in source.records():
        if len(fields) != source.width:
            problem = f"{_fields(len(fields))} where {source.width} are expected"
            mend = "put labels that contain one in quotation marks" if source.dialect.quoted else "mend this line"
            raise FileError(source.path, problem, f"separate fields with {source.dialect.words} and {mend}", line=line)
        for name in source.layout.required:
            if not fields[source.positions[name]]:
                raise FileError(source.path, f"the {name} is empty", "fill it in or remove the line", line=line)
        if source.layout.unique is not None:
            value = fields[source.positions[source.layout.unique]]
            if value in seen:
                problem = f"the {source.layout.unique} {value!r} is already on line {seen[value]}"
                raise FileError(source.path, problem, "keep one of the two lines", line=line)
            seen[value] = line


def _no_rows(path: Path, layout: Layout) -> FileError:
    return FileError(path, f"has column names but no {layout.rows}", "give a file with at least one row")


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def _has_empty(column: pa.ChunkedArray) -> bool:
    return any(
        pc.any(pc.equal(chunk.dictionary if isinstance(chunk, pa.DictionaryArray) else chunk, "")).as_py() is True
        for chunk in column.chunks
    )


def read_parquet(path: Path, layout: Layout) -> pa.Table:
    """Read the columns of ``layout`` from a Parquet file; integers become their decimal notation."""
    if path.stat().st_size == 0:
        raise FileError(path, "is empty", "give a file with at least one row")
    try:
        with pq.ParquetFile(path) as file:
            header = file.schema_arrow.names
            positions = layout.locate(path, header)
            table = file.read(columns=[header[position] for position in positions.values()])
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise FileError(path, f"cannot be read as Parquet ({reason})", "copy or write it again") from error
    if table.num_rows == 0:
        raise _no_rows(path, layout)
    columns = {
        name: _label_column(path, header[position], table.column(header[position]))
        for name, position in positions.items()
    }
    _check_rows(path, columns, layout)
    encoded = pa.types.is_dictionary(layout.column_type)
    return pa.table({name: encode(column) if encoded else column for name, column in columns.items()}).combine_chunks()


def _label_column(path: Path, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of strings, or of what can stand for strings, as plain strings."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_null)
    if not any(test(kind) for test in tests) and not str(kind).endswith(("binary", "_view")):
        problem = f"the column {name!r} holds values of type {kind}, not labels"
        raise FileError(path, problem, "store it as strings or integers")
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise FileError(path, f"the column {name!r} is not UTF-8 text", "store it as strings") from error


def _check_rows(path: Path, columns: dict[str, pa.ChunkedArray], layout: Layout) -> None:
    for name in layout.required:
        empty = pc.equal(pc.fill_null(columns[name], ""), "")
        if (row := pc.index(empty, True).as_py()) >= 0:
            raise FileError(path, f"the {name} is empty in row {row + 1}", "fill it in or remove the row")
    if layout.unique is None or pc.count_distinct(columns[layout.unique]).as_py() == len(columns[layout.unique]):
        return
    seen: dict[str, int] = {}
    for row, value in enumerate(columns[layout.unique].to_pylist(), start=1):
        if value in seen:
            problem = f"the {layout.unique} {value!r} of row {row} is already in row {seen[value]}"
            raise FileError(path, problem, "keep one of the two rows")
        seen[value] = row


def write_text(stream: IO[bytes], table: pa.Table, dialect: Dialect, *, header: bool = True) -> None:
    """Write a table of encoded columns, which :func:`check_writable` has let pass, with a header or without."""
    values = [_escaped(column.chunk(0).dictionary, dialect) for column in table.columns]
    indices = [column.chunk(0).indices for column in table.columns]
    if header:
        stream.write((dialect.delimiter.join(table.column_names) + "\n").encode())
    for start in range(0, table.num_rows, _ROWS_PER_WRITE):
        parts = [v.take(i.slice(start, _ROWS_PER_WRITE)) for v, i in zip(values, indices, strict=True)]
        lines = pc.binary_join_element_wise(*parts, dialect.delimiter).to_pylist()
        stream.write(("\n".join(lines) + "\n").encode())


def text_dialect(suffix: str) -> Dialect:
    """Return the dialect in which files of this suffix are written."""
    return _COMMA if suffix == ".csv" else _TAB


def check_writable(path: Path, table: pa.Table, dialect: Dialect) -> None:
    """Raise a :class:`UserError` for the first value that this dialect cannot hold and give back."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.chunk(0).dictionary
        for pattern, what, remedy in _UNWRITABLE[: 1 if dialect.quoted else None]:
            row = pc.index(pc.match_substring_regex(values, pattern), True).as_py()
            if row >= 0:
                value = values[row].as_py()
                raise UserError(f"the {name} {value!r} contains {what}, which {path.name} cannot hold; {remedy}.")


def _escaped(values: pa.StringArray, dialect: Dialect) -> pa.StringArray:
    if not dialect.quoted:
        return values
    doubled = pc.replace_substring(values, '"', '""')
    special = pc.match_substring_regex(values, f'["\r\n{dialect.delimiter}]')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), values)
