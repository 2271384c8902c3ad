"""Write the tables of results and of speed in README.md from the records in docs: no figure in them is typed by hand.

Run it after ``refactorgnn reproduce inductive``, ``reproduce transductive`` and ``refactorgnn bench``: ``python
scripts/readme_results.py``. A test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from refactorgnn.bench.page import duration
from refactorgnn.bench.records import BenchRecord, load_bench_records
from refactorgnn.bench.rivals import PUBLISHED
from refactorgnn.reproduce.cells import Cell, Metric
from refactorgnn.reproduce.goals import goals_by_table
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import load_records
from refactorgnn.reproduce.tables import NUM_SEEDS, TABLES

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- made by scripts/readme_results.py -->", "<!-- end -->"
KNOWN_BEGIN = "<!-- one graph, made by scripts/readme_results.py -->"
SPEED_BEGIN = "<!-- speed, made by scripts/readme_results.py -->"
LAYERS = [(dataset, dim) for dataset in ("FB15k-237", "WN18RR") for dim in (256, 768)]
ROWS = {
    "best [R]": "one model, no texts",
    "best [T]": "one model, with texts",
    "ensemble [R]": "an ensemble, no texts",
    "ensemble [T]": "an ensemble, with texts",
}
KNOWN_ROWS = {
    "ReFactorGNN(inf)": "infinite depth, as in the paper",
    "ReFactorGNN(inf) ComplEx": "the same with another score",
    "ComplEx + relations": "a table that predicts relations, too",
    "ensemble (inf)": "an ensemble",
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


def known_block() -> str:
    """The lines between the marks about entities that were trained on, these included."""
    table = TABLES["transductive"]
    cells = table.cells(Recipe.load("best"), load_records(ROOT / "docs" / "results"), NUM_SEEDS)
    names = [column.name for column in table.columns]
    lines = [KNOWN_BEGIN, f"| test MRR | {' | '.join(names)} |", "|---|---:|---:|---:|"]
    for row, about in KNOWN_ROWS.items():
        ours = {cell.column.name: _known_text(cell) for cell in cells if cell.row.name == row}
        lines.append(f"| `{row}`, {about} | {' | '.join(ours.get(name, '–') for name in names)} |")
    papers = [cell.published for cell in cells if cell.row.name == "ReFactorGNN(inf)"]
    lines.append(f"| the paper's ReFactorGNN(∞) | {' | '.join(f'{one.mean:.3f}' for one in papers if one)} |")
    return "\n".join([*lines, END])


def _known_text(cell: Cell) -> str:
    if cell.ours is None:
        return "–"
    return f"{cell.ours.mean:.3f}" + ("" if cell.ours.n == NUM_SEEDS else f" ({cell.ours.n} of {NUM_SEEDS} seeds)")


def speed_block() -> str:
    """The lines between the marks about speed, these included."""
    lines = [
        SPEED_BEGIN,
        "| a layer, forward, on one H200 (bfloat16) | time | its three products alone | the published formulation |",
        "|---|---:|---:|---:|",
    ]
    records = load_bench_records(ROOT / "docs")
    for dataset, dim in LAYERS:
        (record,) = (one for one in records if _is_layer(one, dataset, dim))
        theirs = record.rival_seconds(PUBLISHED)
        assert theirs is not None, "the published formulation of these fits on that machine"
        times = (duration(seconds) for seconds in (record.subject_seconds, record.floor_seconds, theirs))
        lines.append(f"| {dataset}, d = {dim} | {' | '.join(times)} |")
    return "\n".join([*lines, END])


def _is_layer(record: BenchRecord, dataset: str, dim: int) -> bool:
    case = record.of
    asked = case.row, case.dataset, case.dim, case.precision
    return asked == ("layer", dataset, dim, "bf16") and "H200" in record.machine


def readme() -> str:
    """README.md with the tables as they should be."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for begin, lines in ((BEGIN, block()), (KNOWN_BEGIN, known_block()), (SPEED_BEGIN, speed_block())):
        before, _, rest = text.partition(begin)
        text = before + lines + rest.partition(END)[2]
    return text


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
