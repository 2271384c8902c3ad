"""Figures: the same bytes for the same points, every label in them, the size that pages show."""

from __future__ import annotations

import re
import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from refactorgnn.errors import UserError
from refactorgnn.reproduce.plots import DepthPoint, Panel, Series, draw_depth, draw_lines, short_number

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
PANEL = Panel(
    "width d",
    "seconds",
    tuple(Series(name, (64.0, 128.0), (0.1 + place, 0.3 + place), place) for place, name in enumerate("ABCD")),
    "a title",
    logarithmic=True,
)


def depth_points() -> list[DepthPoint]:
    points = [
        DepthPoint("GAT", "fb237_v1", layers, 300_000 + 600_000 * layers, mean, 0.01, 5)
        for layers, mean in ((1, 0.33), (3, 0.36), (6, 0.31), (9, 0.27))
    ]
    return points + [
        DepthPoint("ReFactorGNN", "fb237_v1", layers, 276_480, mean, 0.008, seeds)
        for layers, mean, seeds in ((9, 0.44, 3), (1, 0.38, 5), (3, 0.41, 5))  # 6 is missing
    ]


@needs_matplotlib
def test_the_same_points_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (draw_depth(depth_points(), tmp_path / folder, "depth") for folder in ("one", "two"))
    assert first.svg.read_bytes() == second.svg.read_bytes()
    assert first.png.read_bytes() == second.png.read_bytes()
    changed = [*depth_points()[1:], DepthPoint("GAT", "fb237_v1", 1, 900_000, 0.34, 0.01, 5)]
    assert draw_depth(changed, tmp_path, "depth").png.read_bytes() != first.png.read_bytes()


@needs_matplotlib
def test_a_figure_of_depth_says_everything(tmp_path: Path) -> None:
    drawing = draw_depth(depth_points(), tmp_path, "depth")
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", drawing.svg.read_text(encoding="utf-8"))
    labels = {f"{model}, {what}" for model in ("GAT", "ReFactorGNN") for what in ("test MRR", "parameters")}
    assert labels | {"fb237_v1", "layers L", "test MRR", "parameters", "1", "3", "6", "9", "2M"} <= set(texts)
    assert "mean ± standard deviation of 3 to 5 seeds" in drawing.caption
    assert "fb237_v1" in drawing.caption


@needs_matplotlib
def test_published_figures_are_drawn_where_known(tmp_path: Path) -> None:
    point = DepthPoint("GAT", "fb237_v2", 3, 10, 0.3, 0.0, 1, published=0.35)
    drawing = draw_depth([point], tmp_path, "depth")
    assert "GAT, paper's MRR" in drawing.svg.read_text(encoding="utf-8")
    assert "ReFactorGNN" not in drawing.svg.read_text(encoding="utf-8")
    assert "of 1 seed)" in drawing.caption


@needs_matplotlib
def test_each_dataset_has_a_panel(tmp_path: Path) -> None:
    points = [DepthPoint("GAT", dataset, 3, 10, 0.3, 0.0, 1) for dataset in ("fb237_v1", "fb237_v2")]
    drawing = draw_depth(points, tmp_path, "depth")
    assert all(point.dataset in drawing.svg.read_text(encoding="utf-8") for point in points)
    assert drawing.caption.endswith("on fb237_v1 and fb237_v2.")


@needs_matplotlib
def test_the_png_is_large_enough_and_the_fonts_too(tmp_path: Path) -> None:
    drawing = draw_lines([PANEL, PANEL, PANEL], tmp_path, "lines", columns=2)
    width, height = struct.unpack(">II", drawing.png.read_bytes()[16:24])
    assert (width, height) == (7.2 * 160, 2 * 3.0 * 160)
    svg = drawing.svg.read_text(encoding="utf-8")
    assert {float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)} == {10.0}  # px of 1/72 inch
    assert {"A", "B", "C", "D", "a title", "width d", "seconds", "64", "128"} <= set(
        re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    )
    assert 'width="518.4pt"' in svg


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (250, "250"), (1000, "1k"), (1024, "1,024"), (1500, "1.5k"), (64_000, "64k"), (1_500_000, "1.5M")],
)
def test_sizes_are_written_shortly_but_exactly(value: float, text: str) -> None:
    assert short_number(value) == text


def test_without_matplotlib_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"needs matplotlib: pip install 'refactorgnn\[plots\]'\.$"):
        draw_lines([PANEL], tmp_path, "lines")
    assert list(tmp_path.iterdir()) == []
