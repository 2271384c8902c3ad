"""Records: read as they were written, found by what they say, refused when damaged; figures of several seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refactorgnn.errors import FileError
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.records import Aggregate, Record, load_records
from tests.reproduce.small import fake_record
from tests.reproduce.test_experiments import BOTH, ONE

METRICS = dict.fromkeys(("mrr", "hits@1", "hits@3", "hits@10"), 0.5)


def change(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(content), encoding="utf-8")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    for experiment, group in ((ONE, "inductive"), (BOTH, "")):
        record = fake_record(experiment, 0.5)
        record.write(tmp_path / "records" / group / f"{experiment.key}.json")
        assert load_records(tmp_path)[experiment.key] == record
    assert set(load_records(tmp_path)) == {ONE.key, BOTH.key}
    assert load_records(tmp_path / "nowhere") == {}


def test_an_experiment_done_again_says_its_peak_memory_and_nothing_else(tmp_path: Path) -> None:
    again = fake_record(ONE, 0.9, costs={"inference_seconds": 7.0, "peak_memory_mb": 100.0})
    again.write(tmp_path / "memory" / "a.json")
    assert load_records(tmp_path) == {}
    for costs, expected in (
        (None, {"peak_memory_mb": 100.0}),
        ({"inference_seconds": 1.0}, {"inference_seconds": 1.0, "peak_memory_mb": 100.0}),
        ({"inference_seconds": 1.0, "peak_memory_mb": 2.0}, {"inference_seconds": 1.0, "peak_memory_mb": 2.0}),
    ):
        record = fake_record(ONE, 0.5, costs=costs)
        record.write(tmp_path / "records" / "a.json")
        assert load_records(tmp_path) == {ONE.key: replace(record, costs=expected)}
    stamp = {**again.training["trained_with"], "hardware": {"cpu": "a processor", "gpu": "a card"}}
    elsewhere = fake_record(ONE, 0.5, training=again.training | {"trained_with": stamp}, evaluated_with=stamp)
    elsewhere.write(tmp_path / "records" / "a.json")
    assert load_records(tmp_path) == {ONE.key: elsewhere}


def test_a_setting_younger_than_the_record_has_its_default(tmp_path: Path) -> None:
    config = ONE.config.model_dump(mode="json")
    fake_record(ONE, 0.5, key="of older days", config={k: v for k, v in config.items() if k != "clip"}).write(
        tmp_path / "records" / "a.json"
    )
    assert set(load_records(tmp_path)) == {ONE.key}


def test_a_default_that_has_changed_makes_it_another_experiment(tmp_path: Path) -> None:
    older = {**ONE.config.model_dump(mode="json"), "validate_every": 3}
    fake_record(ONE, 0.5, config=older).write(tmp_path / "records" / f"{ONE.key}.json")
    assert set(load_records(tmp_path)) == {replace(ONE, settings={**ONE.settings, "validate_every": 3}).key}


def test_a_setting_younger_than_the_record_has_what_it_was_before_there_was_a_choice(tmp_path: Path) -> None:
    """GraIL was validated against all entities once; its default is 49 of them today."""
    older = Experiment("fb237_v1", "fb237_v1_ind", {"model": "grail", "validation_negatives": 0}, 0)
    config = {name: value for name, value in older.config.model_dump(mode="json").items() if "negatives" not in name}
    fake_record(older, 0.5, config={**config, "negatives": 1}).write(tmp_path / "records" / "a.json")
    assert set(load_records(tmp_path)) == {older.key}


def test_two_records_of_one_experiment_are_refused_whatever_their_paths(tmp_path: Path) -> None:
    for group, figure in (("inductive", 0.5), ("rivals", 0.6)):
        fake_record(ONE, figure).write(tmp_path / "records" / group / "a.json")
    with pytest.raises(FileError, match=r"rivals/a.json: this is of the same experiment as .*inductive/a.json; delete"):
        load_records(tmp_path)


def test_what_a_killed_process_has_left_is_no_record(tmp_path: Path) -> None:
    left = tmp_path / "records" / ".refactorgnn-x" / "a.json"
    left.parent.mkdir(parents=True)
    left.write_text("{", encoding="utf-8")
    assert load_records(tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": 2}, "no format 1"),
        ({"config": {}}, "not complete"),
        ({"speed": 1}, "speed: unexpected keyword argument"),
        ({"full": [1]}, "full: input should be a valid dictionary"),
        ({"full": METRICS | {"mrr": "0.9"}}, "full: mrr is '0.9'"),
        ({"full": METRICS | {"mrr": 7.5}}, "full: mrr is 7.5"),
        ({"partial": METRICS | {"hits@10": float("nan")}}, "partial: hits@10 is nan"),
        ({"partial_exact": {}}, "partial_exact: mrr is None"),
        ({"seconds": "3"}, "seconds: input should be a valid number"),
        ({"seconds": -1.0}, "seconds: input should be greater than or equal to 0"),
        ({"costs": {"inference_seconds": "1"}}, "costs.inference_seconds: input should be a valid number"),
        ({"training": {"seconds": 1.0}}, "training: trained_with is missing"),
        ({"evaluated_with": {"commit": "c0ffee"}}, "evaluated_with: it does not say"),
        ({"seed": 3}, "seed is 3 here and 2 in its settings"),
        ({"dataset": "nell_v1"}, "dataset is 'nell_v1' here and"),
        ({"config": {"dataset": "x", "seed": 0, "model": "refactor", "alhpa": 1}}, "did you mean 'alpha'"),
    ],
)
def test_a_damaged_record_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    fake_record(ONE, 0.5).write(path := tmp_path / "a.json")
    change(path, **changes)
    with pytest.raises(FileError, match=f"a.json: .*{problem}.*delete it to measure again"):
        Record.read(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(FileError, match="not readable JSON"):
        Record.read(path)


def test_committed_records_have_the_keys_that_they_were_written_with() -> None:
    """Whatever settings and defaults have come since: else a table would take them for other experiments."""
    records = load_records(Path(__file__).parents[2] / "docs" / "results")
    assert len(records) > 1000
    assert [key for key, record in records.items() if key != record.key] == []


def test_mean_and_sample_deviation() -> None:
    found = Aggregate.of([0.5, 0.7, 0.9, 0.7])
    assert found is not None
    assert found.mean == pytest.approx(0.7)
    assert found.std == pytest.approx((0.08 / 3) ** 0.5)  # n − 1, not n
    assert found.n == 4
    assert Aggregate.of([0.25]) == Aggregate(0.25, None, 1)
    assert Aggregate.of([]) is None
