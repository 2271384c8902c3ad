"""Tables of entity texts: what is read, what is filled in, what is refused and on which line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refactorgnn.data.files import read_entities, write_entities
from refactorgnn.errors import FileError, UserError

COLUMNS = ("entity", "label", "description")
labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def rows_in(table: pa.Table) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tsv", "entity\tlabel\tdescription\nq1\tOne\tthe first\nq2\tq2\t\n"),
        ("x.tsv", "q1\tOne\tthe first\nq2\tq2\t\n"),
        ("x.csv", 'description,rank,name,id\nthe first,1,One,q1\n"",2,,q2\n'),
        ("x.txt", "q1,One,the first\nq2,,\n"),
    ],
)
def test_reads_entities(tmp_path: Path, name: str, content: str) -> None:
    table = read_entities(write(tmp_path, name, content))
    assert table.schema == pa.schema([(column, pa.string()) for column in COLUMNS])
    assert rows_in(table) == [("q1", "One", "the first"), ("q2", "q2", "")]


@pytest.mark.parametrize("content", ["entity\nq1\nq2\n", "q1\nq2\n"])
def test_entities_without_texts_stand_for_themselves(tmp_path: Path, content: str) -> None:
    assert rows_in(read_entities(write(tmp_path, "x.tsv", content))) == [("q1", "q1", ""), ("q2", "q2", "")]


def test_parquet_entities_may_lack_values(tmp_path: Path) -> None:
    table = pa.table({"name": pa.array(["One", None]), "id": pa.array([1, 2])})
    pq.write_table(table, tmp_path / "x.parquet")
    assert rows_in(read_entities(tmp_path / "x.parquet")) == [("1", "One", ""), ("2", "2", "")]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("entity\tlabel\na\tA\n\nb\tB\na\tC\n", 5, "'a' is already on line 2"),
        ("label\tdescription\nA\ta\n", 1, "no column for the entity"),
        ("entity\tlabel\na\tA\n\tB\n", 3, "the entity is empty"),
        ("entity\tlabel\n", None, "no entities"),
        ("a\tb\tc\td\n", 1, "4 fields where 3"),
    ],
)
def test_refuses_entities(tmp_path: Path, content: str, line: int | None, words: str) -> None:
    with pytest.raises(FileError, match=words) as caught:
        read_entities(write(tmp_path, "x.tsv", content))
    assert caught.value.line == line


def test_refuses_entities_twice_in_parquet_and_in_rdf(tmp_path: Path) -> None:
    pq.write_table(pa.table({"entity": ["a", "b", "a"]}), tmp_path / "x.parquet")
    with pytest.raises(FileError, match="'a' of row 3 is already in row 1"):
        read_entities(tmp_path / "x.parquet")
    with pytest.raises(FileError, match="unknown file format"):
        read_entities(write(tmp_path, "x.nt", ""))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(labels, st.tuples(labels, labels | st.just("")), min_size=1, max_size=8),
    st.sampled_from([".csv", ".parquet", ".csv.gz"]),
)
def test_round_trip_of_entities(texts: dict[str, tuple[str, str]], suffix: str) -> None:
    rows = [(entity, *pair) for entity, pair in texts.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"entities{suffix}"
        write_entities(pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))), path)
        assert rows_in(read_entities(path)) == rows


def test_writer_fills_in_and_refuses(tmp_path: Path) -> None:
    write_entities(pa.table({"entity": ["a", "b"], "label": ["A", None]}), tmp_path / "x.tsv")
    assert (tmp_path / "x.tsv").read_text() == "entity\tlabel\tdescription\na\tA\t\nb\tb\t\n"
    with pytest.raises(UserError, match=r"the description 'two\\nlines' contains a tab or a line break"):
        write_entities(pa.table({"entity": ["a"], "description": ["two\nlines"]}), tmp_path / "y.tsv")
    with pytest.raises(UserError, match="no column 'entity'"):
        write_entities(pa.table({"label": ["a"]}), tmp_path / "y.tsv")
    assert not (tmp_path / "y.tsv").exists()
