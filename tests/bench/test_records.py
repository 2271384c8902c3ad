"""Records: what is read is what was written, and what is damaged is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from refactorgnn.bench.cases import Case
from refactorgnn.bench.records import BenchRecord, load_bench_records, record_path
from refactorgnn.errors import FileError
from tests.bench.planted import planted_record, planted_rival

CASE = Case("layer", "CoDEx-S", 256)


def test_a_record_comes_back(tmp_path: Path) -> None:
    record = planted_record(CASE, rivals=[planted_rival(0.012)])
    path = record.write(tmp_path)
    assert path == record_path(tmp_path, CASE, "abacus")
    assert path.name.startswith("layer-CoDEx-S-d256-cpu-32-")
    assert load_bench_records(tmp_path) == [record]


def test_each_case_and_machine_has_its_own_file(tmp_path: Path) -> None:
    others = [replace(CASE, **change) for change in ({"dim": 8}, {"threads": 2}, {"precision": "bf16"}, {"layers": 2})]
    paths = {record_path(tmp_path, case, "abacus") for case in [CASE, *others]}
    assert len(paths | {record_path(tmp_path, CASE, "slide rule")}) == 6


def test_figures_are_medians_and_the_ratio_is_that_of_the_rounds() -> None:
    record = replace(
        planted_record(CASE, rivals=[planted_rival(0.5, share=0.25)]),
        seconds={"subject": [2.0, 30.0, 4.0], "floor": [1.0, 20.0, 8.0]},
    )
    assert (record.subject_seconds, record.floor_seconds, record.ratio) == (4.0, 8.0, 1.5)
    assert record.rival_seconds("published formulation") == 2.0
    assert record.rival_seconds("nobody") is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("{", "not readable JSON"),
        ('{"format": 99}', "no record of a benchmark"),
        ('{"format": 1, "case": {}}', "not complete"),
    ],
)
def test_a_damaged_record_is_refused(damage: str, words: str, tmp_path: Path) -> None:
    path = planted_record(CASE).write(tmp_path)
    path.write_text(damage, encoding="utf-8")
    with pytest.raises(FileError, match=words):
        load_bench_records(tmp_path)


def test_a_case_that_means_nothing_any_more_is_refused(tmp_path: Path) -> None:
    path = planted_record(CASE).write(tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["case"]["row"] = "forgotten"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(FileError, match="not complete"):
        BenchRecord.read(path)
