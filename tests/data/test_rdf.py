"""RDF files: labels survive the journey through IRIs, literals become texts, errors have lines."""

from __future__ import annotations

import builtins
import gzip
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refactorgnn.data.files import TripleFile, read_triples, write_triples
from refactorgnn.errors import FileError, UserError

pytest.importorskip("pyoxigraph")

SUFFIXES = [".nt", ".ttl", ".n3", ".nt.gz", ".ttl.gz"]
PREFIXES = """\
@prefix x: <http://x.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix schema: <http://schema.org/> .
@prefix dcterms: <http://purl.org/dc/terms/> .
"""

nasty_iris = [
    "http://x.org/a",
    "HTTP://x.org/%20",
    "http://x.org/%zz",
    "http://x.org/a b",
    "http://é.org/ü",
    "a:b",
    "x:",
    "urn:refactorgnn:",
    "urn:refactorgnn:a%20b",
    "urn:refactorgnn:%2f",
    "_:b0",
    "_:0",
    "_:a.b",
    "_:é",
    "_:",
]
nasty_words = [
    "/m/01",
    "a/b#c?d",
    "50%",
    '"',
    "<>",
    "a\tb\nc\rd",
    "\\u0041",
    "日本 語",
    "\U0001f600",
    "\ufeff",
    "e\u0301",
]
nasty = st.sampled_from(nasty_iris) | st.sampled_from(nasty_words)
labels = nasty | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
rows_strategy = st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=6)


def read_text(folder: Path, content: str, name: str = "x.ttl") -> TripleFile:
    (folder / name).write_text(content, encoding="utf-8")
    return read_triples(folder / name)


def rows_in(table: pa.Table) -> list[tuple[str, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def table_of(rows: list[tuple[str, ...]], names: tuple[str, ...] = ("head", "relation", "tail")) -> pa.Table:
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(rows_strategy, st.sampled_from(SUFFIXES))
def test_round_trip_of_any_label(rows: list[tuple[str, str, str]], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write_triples(table_of(rows), path)
        file = read_triples(path)
    assert rows_in(file.table) == rows
    assert file.texts is None
    assert file.notes == ()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(labels, st.tuples(labels, labels | st.just("")), min_size=1, max_size=6),
    st.sampled_from(SUFFIXES),
)
def test_round_trip_of_texts(texts: dict[str, tuple[str, str]], suffix: str) -> None:
    rows = [(entity, *pair) for entity, pair in texts.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write_triples(table_of([("a", "r", "b")]), path, table_of(rows, ("entity", "label", "description")))
        file = read_triples(path)
    assert file.texts is not None
    assert rows_in(file.texts) == rows
    assert rows_in(file.table) == [("a", "r", "b")]


def test_columns_are_dictionaries_and_duplicates_are_kept(tmp_path: Path) -> None:
    table = read_text(tmp_path, "<a:1> <a:r> <a:2> .\n# remark\n\n<a:1> <a:r> <a:2> .\n", "x.nt").table
    assert rows_in(table) == [("a:1", "a:r", "a:2")] * 2
    assert all(column.type == pa.dictionary(pa.int32(), pa.string()) for column in table.columns)
    assert all(column.num_chunks == 1 for column in table.columns)


def test_literals_are_skipped_and_counted(tmp_path: Path) -> None:
    file = read_text(tmp_path, PREFIXES + "x:a x:age 5 ; x:knows x:b ; x:motto 'hi' .\n")
    assert rows_in(file.table) == [("http://x.org/a", "http://x.org/knows", "http://x.org/b")]
    assert file.notes == ("skipped 2 triples whose object is a literal",)
    assert file.texts is None


def test_english_or_plain_texts_are_preferred(tmp_path: Path) -> None:
    file = read_text(
        tmp_path,
        PREFIXES
        + """x:a x:knows x:b, x:c, x:d .
        x:a rdfs:label "Ah"@de, "Ay"@en, "A" ; rdfs:comment "premier"@fr, "first" .
        x:b skos:prefLabel "Bee" ; rdfs:label "Be"@de ; dcterms:description "second"@en-GB .
        x:c schema:description "third" .
        x:d schema:name "Dee"@en ; rdfs:label "D"@en .
        """,
    )
    assert file.texts is not None
    assert rows_in(file.texts) == [
        ("http://x.org/a", "Ay", "first"),
        ("http://x.org/b", "Bee", "second"),
        ("http://x.org/c", "http://x.org/c", "third"),
        ("http://x.org/d", "D", ""),
    ]
    assert file.notes == ()


def test_a_label_that_is_a_resource_is_a_triple(tmp_path: Path) -> None:
    file = read_text(tmp_path, PREFIXES + "x:a rdfs:label x:b .\n")
    assert rows_in(file.table)[0][2] == "http://x.org/b"


def test_anonymous_nodes_get_the_same_name_every_time_and_another_in_another_file(tmp_path: Path) -> None:
    content = PREFIXES + "x:a x:has [ x:part x:b ], _:named .\n"
    first, again = read_text(tmp_path, content), read_text(tmp_path, content)
    other = read_text(tmp_path, content + "x:c x:has x:d .\n")
    assert rows_in(first.table) == rows_in(again.table)
    anonymous = {row[0] for row in rows_in(first.table)} - {"http://x.org/a"}
    assert len(anonymous) == 1
    assert anonymous.isdisjoint({row[0] for row in rows_in(other.table)})
    assert ("http://x.org/a", "http://x.org/has", "_:named") in rows_in(first.table)


def test_quoted_triples_and_formulas_are_skipped(tmp_path: Path) -> None:
    star = PREFIXES + "x:a x:knows x:b .\nx:a x:says <<( x:c x:d x:e )>> .\n"
    assert read_text(tmp_path, star).notes == ("skipped 1 triple about a quoted triple",)
    formula = PREFIXES + "x:a x:knows x:b .\nx:a x:says { x:c x:d x:e } .\n"
    assert "skipped 1 triple inside a formula" in read_text(tmp_path, formula, "x.n3").notes


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("x.nt", "<a:b> <a:c> <a:d> .\n\n<a:b> <a:c .\n", 3, "not valid N-Triples"),
        ("x.nt", "<a:b> <a:c> <a:d> .\n<relative> <a:c> <a:d> .\n", 2, "not valid N-Triples"),
        ("x.ttl", "@prefix x: <a:> .\nx:a x:b x:c .\ny:a x:b x:c .\n", 3, "not valid Turtle"),
        ("x.ttl", "", None, "is empty"),
        ("x.nt", '<a:b> <a:c> "d" .\n', None, "only literals"),
        ("x.nt", "# nothing but a remark\n", None, "no triple"),
    ],
)
def test_refuses(tmp_path: Path, name: str, content: str, line: int | None, words: str) -> None:
    with pytest.raises(FileError) as caught:
        read_text(tmp_path, content, name)
    assert caught.value.line == line
    assert words in str(caught.value)
    assert "Parser error" not in str(caught.value)


def test_refuses_other_encodings_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "x.nt").write_bytes(b"<a:b> <a:c> <a:d> .\n<a:b> <a:c> <a:\xe9> .\n")
    with pytest.raises(FileError, match=r"line 2: .*not UTF-8"):
        read_triples(tmp_path / "x.nt")


def test_compressed_output_is_deterministic(tmp_path: Path) -> None:
    for name in ("one.nt.gz", "two.nt.gz"):
        write_triples(table_of([("a b", "r", "http://x.org/")]), tmp_path / name)
    assert (tmp_path / "one.nt.gz").read_bytes() == (tmp_path / "two.nt.gz").read_bytes()
    content = gzip.decompress((tmp_path / "one.nt.gz").read_bytes()).decode()
    assert content == "<urn:refactorgnn:a%20b> <urn:refactorgnn:r> <http://x.org/> .\n"


def test_without_pyoxigraph_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.nt").write_text("<a:b> <a:c> <a:d> .\n")
    real_import = builtins.__import__

    def refuse(name: str, *args: Any, **options: Any) -> Any:
        if name == "pyoxigraph":
            raise ImportError(name)
        return real_import(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"pip install 'refactorgnn\[rdf\]'"):
        read_triples(tmp_path / "x.nt")
    with pytest.raises(UserError, match=r"pip install 'refactorgnn\[rdf\]'"):
        write_triples(table_of([("a", "r", "b")]), tmp_path / "y.nt")
    assert not (tmp_path / "y.nt").exists()
