"""Known datasets: the table, the bundled graphs, and local copies of the benchmarks where there are any."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from refactorgnn.data.datasets import (
    DATASETS,
    Counts,
    bundled_folder,
    dataset_folder,
    find_dataset,
    has_checksum,
)
from refactorgnn.data.files import read_entities, read_triples
from refactorgnn.errors import UserError
from tests.benchmark_copies import BENCHMARK_COPIES, needs_benchmarks

SPLITS = ("train", "valid", "test")
BENCHMARKS = [name for name, spec in DATASETS.items() if not spec.bundled]
BUNDLED = ["countries", "countries_part", "countries_part_ind"]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# The table


def test_the_table_is_complete() -> None:
    assert len(BENCHMARKS) == 28
    for name in BENCHMARKS:
        spec = DATASETS[name]
        assert spec.name == name
        assert spec.description
        assert spec.source
        assert tuple(spec.files) == SPLITS
        for file in [*spec.files.values(), spec.archive]:
            assert file is None or len(file.sha256) == 64
        addresses = [spec.archive.url] if spec.archive else [file.url for file in spec.files.values()]
        assert all(address is not None and address.startswith("https://") for address in addresses)


def test_inductive_partners() -> None:
    pairs = {name: spec.unseen for name, spec in DATASETS.items() if spec.unseen and not spec.bundled}
    assert len(pairs) == 12
    for seen, unseen in pairs.items():
        assert unseen == f"{seen}_ind"
        assert DATASETS[unseen].unseen is None


def test_names_are_found_in_any_case() -> None:
    assert find_dataset("fb15K-237").name == "FB15k-237"
    assert find_dataset("wn18rr_V1_IND").name == "WN18RR_v1_ind"


def test_unknown_names_get_the_closest() -> None:
    with pytest.raises(UserError, match=r"unknown dataset 'FB15k237': did you mean 'FB15k-237'"):
        find_dataset("FB15k237")


@pytest.mark.parametrize("published", [b"a\nb", b"a\nb\n"])
@pytest.mark.parametrize("copy", [b"a\nb", b"a\nb\n", b"a\nb\n\n"])
def test_checksums_ignore_newlines_at_the_end(published: bytes, copy: bytes) -> None:
    assert has_checksum(copy, sha256(published))
    assert not has_checksum(copy + b"c", sha256(published))


# Bundled graphs


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_graphs_match_their_counts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bundled_folder(name)
    if folder is None:
        pytest.skip(f"the bundled graph {name} has not been built")
    monkeypatch.setenv("REFACTORGNN_DATA", str(tmp_path))
    assert dataset_folder(name, data_root=tmp_path / "nowhere") == folder, "bundled graphs need no data root"
    spec = DATASETS[name]
    assert spec.bundled
    assert spec.unseen == ("countries_part_ind" if name == "countries_part" else None)
    assert count(folder, ".tsv") == spec.counts
    assert read_entities(folder / "entities.tsv").num_rows >= spec.counts.num_entities


def test_other_names_are_not_bundled() -> None:
    assert bundled_folder("FB15k-237") is None
    assert bundled_folder("..") is None


# The real thing


def count(folder: Path, end: str) -> Counts:
    tables = [read_triples(folder / f"{split}{end}").table for split in SPLITS]
    whole = pa.concat_tables(tables)
    entities = {label for name in ("head", "tail") for label in whole[name].unique().to_pylist()}
    return Counts(len(entities), len(whole["relation"].unique()), *(table.num_rows for table in tables))


@needs_benchmarks
@pytest.mark.parametrize("name", BENCHMARKS)
def test_local_copies_of_the_benchmarks(name: str) -> None:
    folder = dataset_folder(name, BENCHMARK_COPIES)
    end = ".txt.gz" if (folder / "train.txt.gz").exists() else ".txt"
    assert count(folder, end) == DATASETS[name].counts
