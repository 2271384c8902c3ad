"""The table of rivals: its page and its plot are made of records, costs included, and of nothing else."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refactorgnn.reproduce import pages
from refactorgnn.reproduce.cells import rival_figures
from refactorgnn.reproduce.cost_plot import COST_CAPTION, Box, CostPoint, boxes_beside
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.figures import cost_points
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Record, load_records
from refactorgnn.reproduce.tables import TABLES
from refactorgnn.reproduce.work import Task, perform_together
from tests.reproduce.small import PAIR, fake_record

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
TABLE = TABLES["rivals"]


def rival_records() -> dict[str, Record]:
    """RuleN on two datasets, with costs; PPR on one, as records were before costs were measured."""
    chosen, found = Recipe.load("paper"), {}
    for row, dataset, figure, costs in (
        ("RuleN", "fb237_v1", 0.37, {"inference_seconds": 0.25, "peak_memory_mb": 512.5}),
        ("RuleN", "fb237_v2", 0.47, {"inference_seconds": 0.5}),
        ("PPR", "fb237_v1", 0.2, None),
    ):
        one = chosen.experiment(row, dataset, f"{dataset}_ind", 0)
        found[one.key] = fake_record(one, figure, costs=costs)
    return found


def test_the_page_shows_accuracy_and_cost_of_each_rival() -> None:
    text = pages.page(TABLE, rival_records())
    assert text is not None
    first = [line for line in text.splitlines() if line.startswith("| RuleN |")]
    cells = [line.split(" | ")[5:7] for line in first[:7]]  # fb237_v1 and fb237_v2, after the four of WN18RR
    assert cells[0] == ["**0.370 (1 of 5)**<br>0.363", "**0.470 (1 of 5)**<br>0.433"]
    assert cells[2] == ["0.370 (1 of 5)<br>0.498", "0.470 (1 of 5)<br>0.778"]
    assert [cell[0] for cell in cells[3:]] == ["CPU 3.0 (1 of 5)", "CPU 0.250 (1 of 5)", "1,234", "CPU 512 (1 of 5)"]
    assert cells[6][1] == pages.MISSING  # its peak was shared
    assert rival_figures()["note"] in text
    (nbfnet, *_) = (line for line in text.splitlines() if line.startswith("| NBFNet"))
    assert nbfnet.split(" | ")[:6] == ["| NBFNet (published)", "0.741", "0.704", "0.452", "0.641", "0.422"]


@needs_matplotlib
def test_the_plot_is_drawn_from_records(tmp_path: Path) -> None:
    records = rival_records()
    assert pages.write_pages(tmp_path, "rivals", records) == [tmp_path / "rivals.md"]
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / "rivals.svg").read_text(encoding="utf-8"))
    assert {"RuleN", "fb237", "test MRR", "seconds of training", "parameters (none: at 1)"} <= set(texts)
    assert not {"PPR", "nell"} & set(
        texts
    )  # the one has not been measured on all there is of fb237, the other not at all
    assert texts.count("RuleN") == 2
    assert (tmp_path / "rivals.png").is_file()
    page = (tmp_path / "rivals.md").read_text(encoding="utf-8")
    assert "![Rivals, live](rivals.svg)" in page
    assert COST_CAPTION in page


def test_a_point_is_the_mean_over_a_family_by_the_recipe_that_has_all_of_it() -> None:
    records = rival_records()
    cells = {name: TABLE.cells(Recipe.load(name), records, 5) for name in ("paper", "best")}
    assert cost_points(cells) == [CostPoint("RuleN", "fb237", "CPU", pytest.approx(0.42), 3.0, 1234)]
    one = Recipe.load("best").experiment("best [R]", "fb237_v2", "fb237_v2_ind", 0)
    partly = records | {one.key: fake_record(one, 0.5)}
    cells = {name: TABLE.cells(Recipe.load(name), partly, 5) for name in ("paper", "best")}
    assert [point.system for point in cost_points(cells)] == ["RuleN"]
    other = Recipe.load("best").experiment("best [R]", "fb237_v1", "fb237_v1_ind", 0)
    on_gpu = {"commit": "c0ffee", "hardware": {"gpu": "one"}}
    training = fake_record(other, 0.3).training | {"seconds": 1.0, "trained_with": on_gpu}
    wholly = partly | {other.key: fake_record(other, 0.3, training=training)}
    cells = {name: TABLE.cells(Recipe.load(name), wholly, 5) for name in ("paper", "best")}
    ours = cost_points(cells)[-1]
    assert (ours.system, ours.mrr, ours.is_ours) == ("best [R]", pytest.approx(0.4), True)
    assert (ours.machine, ours.seconds) == ("both", 2.0)


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 200)), min_size=1, max_size=12))
def test_names_keep_clear_of_each_other_and_of_points(points: list[tuple[float, float]]) -> None:
    frame = Box(-20, -20, 320, 220)
    boxes = boxes_beside(points, [(40.0, 10.0)] * len(points), 4.0, frame)
    assert all(box.is_in(frame) for box in boxes)
    assert all(box.right - box.left == pytest.approx(40) for box in boxes)
    if len(points) <= 4:  # of which there is always room for all names
        for number, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:number])
            assert not any(box.overlaps(Box(x - 4, y - 4, x + 4, y + 4)) for x, y in points)


@pytest.mark.parametrize("model", ["rulen", "ppr"])
def test_an_experiment_leaves_its_costs_in_the_record(model: str, tmp_path: Path) -> None:
    experiment = Experiment(PAIR.dataset, PAIR.graph, {"model": model}, 0)
    task = Task(experiment, tmp_path / "runs", tmp_path / "records" / "one.json", False, {"accelerator": "cpu"}, None)
    assert perform_together([task]) == [None]
    (record,) = load_records(tmp_path).values()
    assert record.costs is not None
    assert record.costs["inference_seconds"] > 0
    assert record.costs["peak_memory_mb"] > 50  # of the whole process
    assert (record.training["num_parameters"] > 0) == (model == "rulen")
    assert record.full["mrr"] > 0.1
