"""The pages: what they say follows from the records, and those in the repository say what its records say."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from refactorgnn.reproduce import pages
from refactorgnn.reproduce.cells import Cell
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Record, load_records
from refactorgnn.reproduce.tables import TABLES
from tests.reproduce.small import fake_record

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


def ablation_records(figures: dict[str, list[float]]) -> dict[str, Record]:
    chosen = Recipe.load("paper")
    experiments = {
        chosen.experiment(row, "fb237_v1", "fb237_v1_ind", seed): figure
        for row, by_seed in figures.items()
        for seed, figure in enumerate(by_seed)
    }
    return {one.key: fake_record(one, figure) for one, figure in experiments.items()}


@pytest.mark.parametrize("name", TABLES)
def test_the_pages_in_the_repository_are_made_of_its_records(name: str) -> None:
    path = RESULTS / f"{name}.md"
    if not path.is_file():
        pytest.skip("there is no page of this table yet")
    assert path.read_text(encoding="utf-8") == pages.page(TABLES[name], load_records(RESULTS))


def test_there_is_no_page_without_records(tmp_path: Path) -> None:
    assert [pages.page(table, {}) for table in TABLES.values()] == [None] * len(TABLES)
    assert pages.write_pages(tmp_path, "depth", {}) == []
    assert list(tmp_path.iterdir()) == []


def test_a_page_shows_ours_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = ablation_records(
        {"with n[v] [R]": [0.43, 0.44, 0.45, 0.42, 0.41], "with n[v] [T]": [0.4, 0.46], "without n[v] [R]": [0.418]}
    )
    chosen = Recipe.load("paper")
    row = chosen.rows["with n[v] [T]"]
    monkeypatch.setitem(chosen.rows, "with n[v] [T]", replace(row, notes="Longer training;\n no gain."))
    monkeypatch.setattr(Recipe, "load", lambda name: chosen if name == "paper" else load(name))
    (path,) = pages.write_pages(tmp_path, "ablation", records)
    assert path == tmp_path / "ablation.md"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Ablation of n[v]"
    assert "| with n[v] [R] | **0.430 ± 0.016**<br>0.425 |" in lines  # √(10⋅10⁻⁴/4)
    assert "| with n[v] [T] | 0.430 ± 0.042 (2 of 5)<br>0.486 |" in lines
    assert "| without n[v] [R] | **0.418 (1 of 5)**<br>0.418 |" in lines
    assert not any(line.startswith("| without n[v] [T] |") for line in lines)
    assert "Left out, since no run of them is recorded: without n[v] [T]." in lines
    assert "- with n[v] [T], MRR: fb237_v1 by 0.056. What was tried: Longer training; no gain." in lines
    assert len([line for line in lines if line.startswith("- ")]) == 1
    assert "| all | 8 | 4.0 | 32 |" in lines
    assert "On abacus, 2 thread(s). Commits: `c0ffee`." in lines
    assert "refactorgnn reproduce ablation --recipe paper --seeds 5 --out docs/results" in lines
    text = "\n".join(lines)
    for word in ("NAME_ind/train", "NAME/valid", "both directions", "realistic ties", "all-MiniLM-L6-v2", "RoBERTa"):
        assert word in text
    assert "these were not, but are their authors' or one point that seemed reasonable: without n[v] [R]." in text
    assert "Recipe `best`" not in text  # of which there are no records


load = Recipe.load


def test_what_other_papers_report_is_shown_where_the_paper_shows_it() -> None:
    chosen = Recipe.load("best")
    one = chosen.experiment("ensemble [T]", "nell_v1", "nell_v1_ind", 0)
    records = {key.key: fake_record(key, 0.9) for key in (one, *one.members)}
    text = pages.page(TABLES["inductive"], records)
    assert text is not None
    assert text.count("| NBFNet (published) | 0.948 | 0.905 |") == 1  # in the table of partial ranking
    assert "| best [T] | 2 | 4.0 | 8 |" in text  # members that are rows of the table themselves are counted there
    assert "| other members of ensembles | 3 | 4.0 | 12 |" in text  # rivals have a table of their own
    assert "| all | 7 | 4.0 | 28 |" in text


def test_a_figure_is_drawn_where_something_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, Path]] = []

    def draw(cells: Sequence[Cell], path: Path) -> None:
        drawn.append((len(cells), path))

    monkeypatch.setitem(pages.RECIPE_FIGURES, "depth", draw)
    one = Recipe.load("best").experiment("ReFactorGNN(3) [R]", "fb237_v2", "fb237_v2_ind", 0)
    (path,) = pages.write_pages(tmp_path, "depth", {one.key: fake_record(one, 0.5)})
    # Two models of four depths on two datasets, MRR and parameters; nothing of the recipe without records.
    assert drawn == [(2 * 4 * 2 * 2, tmp_path / "depth-best")]
    text = path.read_text(encoding="utf-8")
    assert "(depth-best.svg)" in text
    assert "| ReFactorGNN(3) [R] | – | 1,234 |" in text
    assert "GAT(9) [R], ReFactorGNN(1) [R], ReFactorGNN(6) [R]" in text  # left out
    assert "| GAT(9) [R] |" not in text


def test_the_overview_links_the_pages_that_exist(tmp_path: Path) -> None:
    script = runpy.run_path(str(RESULTS.parent.parent / "scripts" / "results_table.py"))
    assert script["links"](tmp_path) == []
    (tmp_path / "README.md").write_text("# Results\n", encoding="utf-8")
    pages.write_pages(tmp_path, "ablation", ablation_records({"with n[v] [R]": [0.4]}))
    assert script["links"](tmp_path) == ["- [Ablation of n[v]](ablation.md)"]


def test_pages_that_share_experiments_are_kept_true(tmp_path: Path) -> None:
    before, after = ablation_records({"with n[v] [R]": [0.4]}), ablation_records({"with n[v] [R]": [0.4, 0.6]})
    assert pages.write_pages(tmp_path, "inductive", before) == [tmp_path / "inductive.md"]
    pages.write_pages(tmp_path, "ablation", after)
    for name in ("inductive", "ablation"):
        text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert text == pages.page(TABLES[name], after)
        assert "0.500 ± 0.141 (2 of 5)" in text
    assert len(list(tmp_path.iterdir())) == 2
