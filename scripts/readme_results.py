"""Write the table of results in README.md from the records in docs/results: no figure in it is typed by hand.

Run it after ``refactorgnn reproduce inductive``: ``python scripts/readme_results.py``. A test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from refactorgnn.reproduce.goals import goals_by_table
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import load_records
from refactorgnn.reproduce.tables import NUM_SEEDS, TABLES, Cell, Metric

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- made by scripts/readme_results.py -->", "<!-- end -->"
ROWS = {
    "best [R]": "one model, no texts",
    "best [T]": "one model, with texts",
    "ensemble [R]": "an ensemble, no texts",
    "ensemble [T]": "an ensemble, with texts",
}
TABLE = TABLES["inductive"]
HITS, MRR = (
    next(metric for metric in TABLE.metrics if metric.title == title)
    for title in ("Hits@10, full ranking", "MRR, full ranking")
)


def block() -> str:
    """The lines between the marks, these included."""
    records = load_records(ROOT / "docs" / "results")
    cells = TABLE.cells(Recipe.load("best"), records, NUM_SEEDS)
    lines = [
        BEGIN,
        "| | mean MRR | mean Hits@10 | pairs where Hits@10 is the paper's or better |",
        "|---|---:|---:|---:|",
    ]
    lines += [_our_line(row, about, cells) for row, about in ROWS.items()]
    for about, row in (
        ("the paper's ReFactorGNN(6), no texts", "best [R]"),
        ("the paper's best row of each pair", "best [T]"),
    ):
        published = [cell.published.mean for cell in _of(cells, row, HITS) if cell.published is not None]
        lines.append(f"| {about} | – | {fmean(published):.4f} | |")
    return "\n".join([*lines, _scale_line(), END])


def _of(cells: list[Cell], row: str, metric: Metric) -> list[Cell]:
    return [cell for cell in cells if cell.row.name == row and cell.metric is metric]


def _our_line(row: str, about: str, cells: list[Cell]) -> str:
    hits = _of(cells, row, HITS)
    means = []
    for found in (_of(cells, row, MRR), hits):
        ours = [cell.ours.mean for cell in found if cell.ours is not None]
        assert len(ours) == len(TABLE.columns), f"{row} is not measured on all pairs"
        means.append(f"{fmean(ours):.4f}")
    reached = sum(cell.shortfall is None for cell in hits)
    return f"| `{row}`, {about} | {' | '.join(means)} | {reached} of {len(hits)} |"


def _scale_line() -> str:
    about = goals_by_table()[TABLE.name]
    means = (fmean(about["metrics"][metric.title]["for scale"].values()) for metric in (MRR, HITS))
    return f"| {about['scale_name']} | {' | '.join(f'{mean:.4f}' for mean in means)} | |"


def readme() -> str:
    """README.md with the table as it should be."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return before + block() + rest.partition(END)[2]


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
