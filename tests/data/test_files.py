"""Tables of triples: what is read, what is refused and on which line, and that writing loses nothing."""

from __future__ import annotations

import codecs
import gzip
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refactorgnn.data.files import (
    SUPPORTED_SUFFIXES,
    TripleFile,
    read_triples,
    write_triples,
)
from refactorgnn.errors import FileError, UserError

LABEL_TYPE = pa.dictionary(pa.int32(), pa.string())
NAMES = ["head", "relation", "tail"]
ROWS = [("a", "likes", "b"), ("b", "likes", "c"), ("a", "likes", "b")]

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
nasty = st.sampled_from(
    [
        "NA",
        "null",
        '"',
        '""',
        "a,b",
        "a;b",
        " a ",
        "'",
        "#",
        "\\",
        "é",
        "日本 語",
        "head",
        "\ufeff",
        "\x1c",
        "1e5",
    ]
)
any_label = st.text(characters, min_size=1) | nasty
line_label = any_label.filter(lambda label: not set(label) & set("\t\r\n"))


def rows_of(labels: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    return st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=8)


def table_of(rows: list[tuple[str, ...]], names: list[str] = NAMES) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)})


def rows_in(file: TripleFile | pa.Table) -> list[tuple[str, ...]]:
    table = file.table if isinstance(file, TripleFile) else file
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def round_trip(rows: list[tuple[str, str, str]], suffix: str) -> TripleFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write_triples(table_of(rows), path)
        return read_triples(path)


# Reading what is well formed


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.tsv", "a\tlikes\tb\nb\tlikes\tc\na\tlikes\tb\n"),
        ("no-final-newline.txt", "a\tlikes\tb\nb\tlikes\tc\na\tlikes\tb"),
        ("crlf.tsv", "a\tlikes\tb\r\nb\tlikes\tc\r\na\tlikes\tb\r\n"),
        ("old-mac.tsv", "a\tlikes\tb\rb\tlikes\tc\ra\tlikes\tb\r"),
        ("bom.tsv", codecs.BOM_UTF8 + b"a\tlikes\tb\nb\tlikes\tc\na\tlikes\tb\n"),
        ("bom-header.csv", codecs.BOM_UTF8 + b"head,relation,tail\na,likes,b\nb,likes,c\na,likes,b\n"),
        ("blank-lines.tsv", "\n\na\tlikes\tb\n\n   \nb\tlikes\tc\n\r\na\tlikes\tb\n\n"),
        ("packed.tsv.gz", gzip.compress(b"a\tlikes\tb\nb\tlikes\tc\na\tlikes\tb\n", mtime=0)),
        ("UPPER.TSV", "a\tlikes\tb\nb\tlikes\tc\na\tlikes\tb\n"),
        ("commas.txt", "a,likes,b\nb,likes,c\na,likes,b\n"),
        ("semicolons.txt", "a;likes;b\nb;likes;c\na;likes;b\n"),
        ("blanks.txt", "  a  likes b\nb likes\t c \r\n\na likes b"),
        ("commas.csv", "a,likes,b\r\nb,likes,c\r\na,likes,b\r\n"),
        ("semicolons.csv", "a;likes;b\nb;likes;c\na;likes;b\n"),
        ("tabs.csv", 'a\tlikes\tb\nb\t"likes"\tc\na\tlikes\tb\n'),
        ("quoted.csv", '"a",likes,"b"\n"b","likes",c\na,likes,b'),
        ("header.tsv", "head\trelation\ttail\na\tlikes\tb\nb\tlikes\tc\na\tlikes\tb\n"),
        ("reordered.csv", "Object,Predicate,Subject\nb,likes,a\nc,likes,b\nb,likes,a\n"),
        ("extra.csv", "id,source,weight,target,type\n1,a,.5,b,likes\n2,b,,c,likes\n3,a,1,b,likes\n"),
        ("letters.csv", "s,p,o\na,likes,b\nb,likes,c\na,likes,b\n"),
        ("neo4j.csv", ":START_ID,:END_ID,:TYPE\na,b,likes\nb,c,likes\na,b,likes\n"),
        ("kgtk.tsv", "id\tnode1\tlabel\tnode2\n1\ta\tlikes\tb\n2\tb\tlikes\tc\n3\ta\tlikes\tb\n"),
        ("quoted-header.csv", '"from\n","rel","to"\na,likes,b\n"b",likes,c\na,likes,b\n'),
        ("header-after-blank.csv", "\n\nhead;relation;tail\na;likes;b\nb;likes;c\na;likes;b\n"),
    ],
)
def test_reads(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert rows_in(read_triples(write(tmp_path, name, content))) == ROWS


def test_columns_are_one_dictionary_chunk_in_order_of_appearance(tmp_path: Path) -> None:
    # Enough rows for several of Arrow's blocks, each with a dictionary of its own.
    far = "of a very long line of entities, " * 3
    rows = [(f"entity {far}{i % 7_000}", f"r{i % 3}", f"entity {i // 2}") for i in range(40_000)]
    path = tmp_path / "x.tsv"
    write_triples(table_of(rows), path)
    assert path.stat().st_size > 1 << 22
    table = read_triples(path).table
    assert table.column_names == NAMES
    for name, column in zip(NAMES, table.columns, strict=True):
        assert column.type == LABEL_TYPE
        assert column.num_chunks == 1
        expected = list(dict.fromkeys(table[name].to_pylist()))
        assert column.chunk(0).dictionary.to_pylist() == expected
    assert rows_in(table) == rows


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = write(tmp_path, "x.tsv", 'a"\t"r\t"b\nNA\tnull\t""\n')
    assert rows_in(read_triples(path)) == [('a"', '"r', '"b'), ("NA", "null", '""')]


def test_csv_quoting_keeps_separators_quotes_and_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", '"a,1","say ""hi""","two\nlines"\nb,5" disk,"x\r\ny"\n')
    assert rows_in(read_triples(path)) == [("a,1", 'say "hi"', "two\nlines"), ("b", '5" disk', "x\r\ny")]


def test_white_space_of_labels_is_kept(tmp_path: Path) -> None:
    assert rows_in(read_triples(write(tmp_path, "x.tsv", " a\tr \t b \n"))) == [(" a", "r ", " b ")]


@pytest.mark.parametrize("row", ["s\tr\tt", "head\tpart_of\tbody", "h\tknows\to"])
def test_labels_that_look_like_one_column_name_are_data(tmp_path: Path, row: str) -> None:
    assert rows_in(read_triples(write(tmp_path, "x.tsv", row + "\n"))) == [tuple(row.split("\t"))]


def test_a_line_longer_than_a_block(tmp_path: Path) -> None:
    long = "x" * (5 << 20)
    path = write(tmp_path, "x.tsv", f"a\tr\tb\n{long}\tr\t{long}\nc\tr\td\n")
    assert rows_in(read_triples(path)) == [("a", "r", "b"), (long, "r", long), ("c", "r", "d")]


# Refusing what is not: every case with its line


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("empty.tsv", "", None, "is empty"),
        ("blank.tsv", " \n\n", None, "is empty"),
        ("unicode-blank.tsv", "\u00a0\n", 1, "1 field where 3"),
        ("header-only.tsv", "head\trelation\ttail\n", None, "no triples"),
        ("header-only-2.csv", "head,relation,tail\n\n\n", None, "no triples"),
        ("no-relation.csv", "head,tail,weight\na,b,1\n", 1, "no column for the relation"),
        ("no-relation.csv", "\nhead,tail,weight\na,b,1\n", 2, "'predicate'"),
        ("twice.csv", "head,relation,tail,head\na,r,b,c\n", 1, "two columns named 'head'"),
        ("two-columns.tsv", "a\tb\nc\td\n", 1, "2 fields where 3"),
        ("four-columns.tsv", "\na\tb\tc\td\n", 2, "4 fields where 3"),
        ("one-column.txt", "a\nb\n", 1, "1 field where 3"),
        ("short.tsv", "a\tr\tb\n\nc\tr\nd\tr\te\n", 3, "2 fields where 3"),
        ("long.tsv", "head\trelation\ttail\na\tr\tb\nc\tr\td\te\n", 3, "4 fields where 3"),
        ("long.csv", 'a,r,"x\ny"\nb,r,c\nd,r,e,f\n', 4, "quotation marks"),
        ("crlf.tsv", "a\tr\tb\r\nc\tr\r\n", 2, "2 fields where 3"),
        ("empty-head.tsv", "a\tr\tb\n\tr\tb\n", 2, "the head is empty"),
        ("empty-relation.csv", "head,relation,tail\na,r,b\n\na,,b\n", 4, "the relation is empty"),
        ("empty-tail.csv", 'a,r,b\nb,r,""\n', 2, "the tail is empty"),
        ("blank-fields.tsv", "a\tr\tb\n\t\t\n", 2, "the head is empty"),
        ("open-quote.csv", 'a,r,b\nc,r,"d\ne,r,f\n', 2, "quotation mark"),
        ("nul.tsv", b"a\tr\tb\nc\tr\0\td\n", 2, "binary"),
        ("utf16.tsv", "a\tr\tb\n".encode("utf-16"), 1, "UTF-16"),
        ("utf16-no-mark.tsv", "a\tr\tb\n".encode("utf-16-le"), 1, "UTF-16"),
        ("latin1.tsv", "a\tr\tb\r\nc\tr\td\r\n\xe9\tr\td\n".encode("latin-1"), 3, "Latin-1"),
        ("really-gzip.tsv", gzip.compress(b"a\tr\tb\n", mtime=0), None, "add .gz to its name"),
        ("not-gzip.tsv.gz", b"a\tr\tb\n", None, "not compressed"),
        ("truncated.tsv.gz", gzip.compress(b"a\tr\tb\n" * 99, mtime=0)[:-9], None, "truncated"),
        ("corrupt.tsv.gz", gzip.compress(b"a\tr\tb\n", mtime=0)[:-8] + b"12345678", None, "corrupt gzip"),
        ("garbage.tsv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage garbage", None, "corrupt gzip"),
        ("empty.parquet", b"", None, "is empty"),
        ("corrupt.parquet", b"PAR1 this is not", None, "cannot be read as Parquet"),
        ("notes.docx", b"", None, ".parquet"),
        ("table.parquet.gz", b"", None, "unknown file format (.parquet.gz)"),
        ("README", b"", None, "unknown file format (no ending)"),
    ],
)
def test_refuses(tmp_path: Path, name: str, content: str | bytes, line: int | None, words: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(FileError) as caught:
        read_triples(path)
    assert caught.value.line == line
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_fault_far_into_a_large_file(tmp_path: Path) -> None:
    good = "".join(f"entity{i}\tlikes\tentity{i + 1}\n" for i in range(200_000))
    path = write(tmp_path, "x.tsv", good + "a\tb\n" + good)
    with pytest.raises(FileError, match=r"line 200001: 2 fields where 3"):
        read_triples(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        read_triples(tmp_path / "x.tsv")
    with pytest.raises(FileError, match="is a folder"):
        read_triples(tmp_path)
    with pytest.raises(FileError, match="is a folder"):
        write_triples(table_of(ROWS), tmp_path)


def test_supported_suffixes_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_triples(tmp_path / "x.xlsx")
    assert all(suffix in str(caught.value) for suffix in SUPPORTED_SUFFIXES)


# Parquet


def test_parquet_takes_integers_large_strings_and_dictionaries(tmp_path: Path) -> None:
    table = pa.table(
        {
            "weight": pa.array([0.5, 1.0]),
            "target": pa.array([7, -8], pa.int64()),
            "predicate": pa.array(["r", "r"], pa.large_string()),
            "source": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    file = read_triples(tmp_path / "x.parquet")
    assert rows_in(file) == [("x", "r", "7"), ("y", "r", "-8")]
    assert {column.type for column in file.table.columns} == {LABEL_TYPE}


def test_parquet_dictionary_holds_only_what_is_used(tmp_path: Path) -> None:
    table = pa.table({name: pa.array(["", "b", "a"]).dictionary_encode() for name in NAMES}).slice(1)
    pq.write_table(table, tmp_path / "x.parquet")
    assert read_triples(tmp_path / "x.parquet").table["head"].chunk(0).dictionary.to_pylist() == ["b", "a"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"head": ["a"], "tail": ["b"]}, "no column for the relation"),
        ({"head": [1.5], "relation": ["r"], "tail": ["b"]}, "'head' holds values of type double"),
        ({"head": ["a", None], "relation": ["r", "r"], "tail": ["b", "b"]}, "the head is empty in row 2"),
        ({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", ""]}, "the tail is empty in row 2"),
        ({"head": [b"\xff"], "relation": ["r"], "tail": ["b"]}, "'head' is not UTF-8"),
        ({name: pa.array([], pa.string()) for name in NAMES}, "no triples"),
    ],
)
def test_parquet_refuses(tmp_path: Path, columns: dict[str, object], words: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(FileError, match=words):
        read_triples(tmp_path / "x.parquet")


# Writing


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(rows_of(line_label), st.sampled_from([".tsv", ".txt", ".tsv.gz", ".txt.gz"]))
def test_round_trip_of_unquoted_text(rows: list[tuple[str, str, str]], suffix: str) -> None:
    assert rows_in(round_trip(rows, suffix)) == rows


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(rows_of(any_label), st.sampled_from([".csv", ".csv.gz", ".parquet"]))
def test_round_trip_of_any_label(rows: list[tuple[str, str, str]], suffix: str) -> None:
    assert rows_in(round_trip(rows, suffix)) == rows


def test_written_text_is_plain(tmp_path: Path) -> None:
    write_triples(table_of([("a,1", 'say "hi"', "b")]), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes() == b'head,relation,tail\n"a,1","say ""hi""",b\n'
    write_triples(table_of([("a,1", 'say "hi"', "b")]), tmp_path / "x.tsv")
    assert (tmp_path / "x.tsv").read_bytes() == b'head\trelation\ttail\na,1\tsay "hi"\tb\n'


def test_gzip_output_is_deterministic(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_triples(table_of(ROWS), tmp_path / folder / f"{folder}.tsv.gz")
    content = (tmp_path / "one/one.tsv.gz").read_bytes()
    assert content == (tmp_path / "two/two.tsv.gz").read_bytes()
    assert content[4:8] == bytes(4), "the header must not carry the time"


def test_parquet_keeps_the_dictionaries(tmp_path: Path) -> None:
    write_triples(table_of(ROWS), tmp_path / "x.parquet")
    assert {field.type for field in pq.read_schema(tmp_path / "x.parquet")} == {LABEL_TYPE}


@pytest.mark.parametrize("label", ["a\tb", "a\nb", "a\rb"])
def test_tsv_refuses_labels_with_tabs_and_line_breaks(tmp_path: Path, label: str) -> None:
    path = tmp_path / "x.tsv"
    write_triples(table_of(ROWS), path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"the tail .* contains a tab or a line break.*\.csv or \.parquet") as caught:
        write_triples(table_of([("a", "r", label)]), path)
    assert repr(label) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_text_refuses_nul(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UserError, match=r"NUL character.*\.parquet"):
        write_triples(table_of([("a\0", "r", "b")]), tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_writer_refuses_incomplete_tables(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column 'relation'"):
        write_triples(pa.table({"head": ["a"], "tail": ["b"]}), tmp_path / "x.tsv")
    with pytest.raises(UserError, match="the head of row 2 is empty"):
        write_triples(table_of([("a", "r", "b"), ("", "r", "b")]), tmp_path / "x.tsv")
    with pytest.raises(UserError, match="write_entities"):
        write_triples(table_of(ROWS), tmp_path / "x.tsv", texts=pa.table({"entity": ["a"]}))
    with pytest.raises(FileError, match="unknown file format"):
        write_triples(table_of(ROWS), tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tsv"
    write_triples(table_of(ROWS), path)
    before = path.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refactorgnn.data.files.write_text", full_disk)
    with pytest.raises(FileError, match="no space left"):
        write_triples(table_of([("x", "y", "z")]), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tsv"]
