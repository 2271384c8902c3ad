"""Entity texts of known datasets: the table, the files of a data root, and names that speak for themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from refactorgnn.data.datasets import DATASETS, DatasetSpec, find_dataset
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import load_folder, load_graph
from refactorgnn.data.text_features import entity_texts
from refactorgnn.data.texts import attach_texts, readable_name, text_file
from refactorgnn.errors import FileError
from tests.benchmark_copies import BENCHMARK_COPIES, needs_benchmarks
from tests.conftest import write_folder

UMLS = find_dataset("UMLS")
ROWS = "entity\tlabel\tdescription\nb\tBee\tan insect\nz\tZed\tof another graph\n"


@pytest.fixture(autouse=True)
def _no_data_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFACTORGNN_DATA", raising=False)


@pytest.fixture
def graph(tmp_path: Path) -> KnowledgeGraph:
    return load_folder(write_folder(tmp_path / "triples", train="a\tlikes\tb\nb\tlikes\tc_d\n"))


def put_texts(root: Path, content: bytes = ROWS.encode(), end: str = "tsv") -> Path:
    path = root / "text" / f"umls.{end}"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def columns(graph: KnowledgeGraph) -> dict[str, list[str]]:
    assert graph.texts is not None
    return graph.texts.to_pydict()


# The table


def expected_texts(spec: DatasetSpec) -> str | None:
    starts = {"FB15k-237": "fb15k237", "fb237_v": "fb15k237", "WN18RR": "wn18rr", "UMLS": "umls"}
    return next((texts for start, texts in starts.items() if spec.name.startswith(start)), None)


@pytest.mark.parametrize("name", DATASETS)
def test_each_dataset_names_its_texts(name: str) -> None:
    assert DATASETS[name].texts == expected_texts(DATASETS[name])


def test_most_benchmarks_have_texts() -> None:
    assert sum(spec.texts is not None for spec in DATASETS.values()) == 19


# Attaching


@pytest.mark.parametrize(
    ("end", "content"), [("tsv", ROWS.encode()), ("tsv.gz", gzip.compress(ROWS.encode(), mtime=0))]
)
def test_texts_of_the_data_root_are_attached(graph: KnowledgeGraph, tmp_path: Path, end: str, content: bytes) -> None:
    put_texts(tmp_path, content, end)
    attached = attach_texts(graph, UMLS, tmp_path)
    assert columns(attached) == {
        "entity": ["a", "b", "c_d"],
        "label": ["a", "Bee", "c_d"],
        "description": ["", "an insect", ""],
    }
    assert attached.notes == graph.notes
    assert graph.texts is None


def test_the_variable_names_a_data_root_too(
    graph: KnowledgeGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put_texts(tmp_path)
    monkeypatch.setenv("REFACTORGNN_DATA", str(tmp_path))
    assert text_file("umls") == path
    assert attach_texts(graph, UMLS).label(1) == "Bee"


@pytest.mark.parametrize("has_root", [True, False])
def test_missing_texts_are_noted_without_a_path_of_this_machine(
    graph: KnowledgeGraph, tmp_path: Path, has_root: bool
) -> None:
    attached = attach_texts(graph, UMLS, tmp_path if has_root else None)
    assert attached.texts is None
    (note,) = attached.notes
    assert "text/umls.tsv or .tsv.gz" in note
    assert "--data-root" in note
    assert "REFACTORGNN_DATA" in note
    assert str(tmp_path) not in note


def test_texts_of_its_own_come_first(tmp_path: Path) -> None:
    put_texts(tmp_path)
    folder = write_folder(tmp_path / "triples", train="a\tlikes\tb\n", entities="entity\tlabel\nb\tBeatrice\n")
    assert attach_texts(load_folder(folder), UMLS, tmp_path).label(1) == "Beatrice"


def test_datasets_without_texts_are_left_alone(graph: KnowledgeGraph, tmp_path: Path) -> None:
    assert attach_texts(graph, find_dataset("nell_v1"), tmp_path) is graph


def test_a_damaged_file_is_an_error(graph: KnowledgeGraph, tmp_path: Path) -> None:
    put_texts(tmp_path, gzip.compress(ROWS.encode(), mtime=0)[:-12], "tsv.gz")
    with pytest.raises(FileError, match="gzip"):
        attach_texts(graph, UMLS, tmp_path)


@needs_benchmarks
@pytest.mark.parametrize("name", ["UMLS", "fb237_v1_ind", "WN18RR_v1"])
def test_local_copies_have_texts(name: str) -> None:
    graph = load_graph(name, data_root=BENCHMARK_COPIES)
    if graph.texts is None:
        pytest.skip(f"no texts beside the local copies of the benchmarks: {graph.notes[-1]}")
    assert graph.texts.num_rows == graph.num_entities
    texts, num_without_text = entity_texts(graph)
    assert num_without_text == 0
    assert all(texts)


# Names


@pytest.mark.parametrize(
    ("name", "label", "description"),
    [
        ("concept:sportsteam:ravens", "ravens", "sportsteam"),
        ("concept:politician:dave_bing", "dave bing", "politician"),
        ("concept:ravens", "ravens", ""),
        ("/m/0102t4", "0102t4", ""),
        ("http://dbpedia.org/resource/New_York/", "New York", ""),
        ("http://example.org/things#Big_Ben", "Big Ben", ""),
        ("C#", "C#", ""),
        ("age_group", "age group", ""),
        ("Mission: Impossible", "Mission: Impossible", ""),
        ("Île [/b] :smile:", "Île [/b] :smile:", ""),
        ("2", "2", ""),
        ("::", "::", ""),
        ("_", "_", ""),
    ],
)
def test_readable_names(name: str, label: str, description: str) -> None:
    assert readable_name(name) == (label, description)
