"""The page of a benchmark, made of its records and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from refactorgnn.bench.cases import ROWS, Case, sweeps
from refactorgnn.bench.curves import curves_name, draw_curves, has_curves
from refactorgnn.bench.goals import GOALS
from refactorgnn.bench.records import FOLDER, BenchRecord
from refactorgnn.storage import write_text

PAGE = "benchmarks.md"
MISSING = "–"
_INTRODUCTION = f"""\
# Benchmarks

Written by `refactorgnn bench` from the records in [{FOLDER}]({FOLDER}): no figure is typed by hand.

## How to read it

- **time**: the median of several runs after a first one (on a GPU: three) that is not counted, unless it took a CPU ten
  seconds or more.
- **floor**: the matrix products that the row cannot do without, alone, on random matrices of the same type with |V| and
  d rounded up to multiples of 8, in the same memory. Ours, floor and rivals take turns, so that noise hits all of them;
  **time / floor** is the median over the turns. Products of |Q| × |V| × d: a layer has 3 (scores, P K, Pᵀ Q); its
  backward pass 7 more (the scores again, Ē Kᵀ, Q Ḡᵀ, S̄ K, P Ḡ, S̄ᵀ Q, Pᵀ Ē), without the last two where states are not
  learned, as in layer-wise training; a loss with its derivative 3; a ranking 1 for its distinct questions.
- **memory**: the peak above inputs and outputs: what torch has allocated on a GPU, what the process has grown by on a
  CPU.
- |T| counts reciprocals; |Q| is the number of distinct questions (head, relation) among them. In an evaluation both are
  about the triples that are ranked.
- **published formulation**: a row of scores and one of probabilities for every triple, not for every question: two
  matrices of |T| × |V| at once, five with the backward pass.
- Other libraries stand where they do the same work, with the same weights; what differs is noted below the table.
"""


def write_page(folder: str | Path, records: Sequence[BenchRecord]) -> list[Path]:
    """Write ``FOLDER/benchmarks.md`` and its figures; the files."""
    folder = Path(folder)
    write_text(folder / PAGE, bench_page(records))
    drawings = [draw_curves(group.records, folder / FOLDER, group.slug) for group in _groups(records) if group.is_drawn]
    return [folder / PAGE, *(path for pair in drawings for one in pair for path in (one.svg, one.png))]


def bench_page(records: Sequence[BenchRecord]) -> str:
    """The page."""
    lines = [_INTRODUCTION, *_goals(records)]
    for group in _groups(records):
        lines += _group_section(group)
    return "\n".join(lines)


@dataclass(frozen=True)
class _Group:
    """Records that can stand in one table: of one machine and one way to use it."""

    machine: str
    precision: str
    threads: int
    memory_budget_mb: int | None
    records: tuple[BenchRecord, ...]

    @property
    def title(self) -> str:
        budget = f", {self.memory_budget_mb} MiB of temporaries" if self.memory_budget_mb else ""
        return f"{self.machine}, {self.precision}, {self.threads} thread(s){budget}"

    @property
    def slug(self) -> str:
        words = "".join(letter if letter.isalnum() else "-" for letter in self.machine.lower())
        machine = "-".join(filter(None, words.split("-")))
        return f"{machine}-{self.precision}-{self.threads}" + (
            f"-{self.memory_budget_mb}" * bool(self.memory_budget_mb)
        )

    @property
    def is_drawn(self) -> bool:
        return has_curves(self.records)


def _groups(records: Iterable[BenchRecord]) -> list[_Group]:
    found: dict[tuple[str, str, int, int | None], list[BenchRecord]] = {}
    for record in records:
        case = record.of
        found.setdefault((record.machine, case.precision, case.threads, case.memory_budget_mb), []).append(record)
    groups = [_Group(*key, tuple(sorted(members, key=_order))) for key, members in found.items()]
    return sorted(groups, key=lambda group: (group.records[0].of.device == "cpu", group.slug))


def _order(record: BenchRecord) -> tuple[int, ...]:
    return *(record.sizes[name] for name in ("num_entities", "num_triples", "dim")), record.of.layers


def _goals(records: Sequence[BenchRecord]) -> list[str]:
    rows = []
    for goal in GOALS:
        value = goal.value(records)
        verdict = "not measured" if value is None else "yes" if goal.is_met(value) else "no"
        figure = MISSING if value is None else f"{value:.2f}"
        rows.append([f"{goal.row}, {goal.dataset}, d = {goal.dim}", goal.where, goal.text, figure, verdict])
    return ["## Goals", "", *_table(["row", "machine", "goal", "measured", "met"], rows, num_words=3), ""]


def _group_section(group: _Group) -> list[str]:
    lines = [f"## {group.title}", ""]
    swept = {_sizes_key(case) for sweep in sweeps(group.records[0].of.device) for case in sweep.cases}
    for name, row in ROWS.items():
        records = [one for one in group.records if one.of.row == name and _sizes_key(one.of) not in swept]
        if records:
            lines += [f"### {row.title} (`{name}`)", "", *_row_table(records), "", *_rival_notes(records)]
    if group.is_drawn:
        lines += ["### Cost against |T|, |V|, d and L", ""]
        for quantity in ("time", "memory"):
            path = f"{FOLDER}/{curves_name(group.slug, quantity)}.svg"
            lines += [f"![{quantity.title()} against |T|, |V|, d and L]({path})", ""]
        points = [one for one in group.records if _sizes_key(one.of) in swept]
        points.sort(key=lambda one: list(ROWS).index(one.of.row))  # stable: by size within a row
        lines += [*_points_table(points), ""]
    return [*lines, *_origin(group.records), ""]


def _sizes_key(case: Case) -> tuple[str, str, int, int]:
    return case.row, case.dataset, case.dim, case.layers


def _row_table(records: Sequence[BenchRecord]) -> list[str]:
    rivals = list(dict.fromkeys(rival["name"] for record in records for rival in record.rivals))
    headings = ["dataset", "|T|", "|Q|", "|V|", "d", "time", "floor", "time / floor", "memory", *rivals]
    rows = [[*_figures(record), *(_rival_cell(record, name) for name in rivals)] for record in records]
    return _table(headings, rows)


def _figures(record: BenchRecord) -> list[str]:
    sizes = (f"{record.sizes[name]:,}" for name in ("num_triples", "num_queries", "num_entities", "dim"))
    times = duration(record.subject_seconds), duration(record.floor_seconds), f"{record.ratio:.2f}"
    return [record.of.dataset, *sizes, *times, f"{record.peak_bytes / 1e6:,.0f} MB"]


def _rival_cell(record: BenchRecord, name: str) -> str:
    seconds = record.rival_seconds(name)
    if seconds is None:
        return MISSING
    peak = next(rival["peak_bytes"] for rival in record.rivals if rival["name"] == name)
    memory = "" if peak is None else f", {peak / 1e6:,.0f} MB"
    return f"{duration(seconds)} ({seconds / record.subject_seconds:.1f} × ours){memory}"


def _rival_notes(records: Sequence[BenchRecord]) -> list[str]:
    """What differs, or why there is no figure; one line for all records that have the same to say."""
    said: dict[tuple[str, str], list[str]] = {}
    for record in records:
        for rival in record.rivals:
            if rival["note"]:
                place = f"{record.of.dataset}, d = {record.of.dim}"
                said.setdefault((rival["name"], rival["note"]), []).append(place)
    lines = [f"- {name} ({'; '.join(places)}): {note}." for (name, note), places in said.items()]
    return [*lines, ""] if lines else []


def _points_table(records: Sequence[BenchRecord]) -> list[str]:
    rows = [[record.of.row, str(record.of.layers), *_figures(record)[1:]] for record in records]
    return _table(["row", "L", "|T|", "|Q|", "|V|", "d", "time", "floor", "time / floor", "memory"], rows)


def _origin(records: Sequence[BenchRecord]) -> list[str]:
    commits = ", ".join(f"`{commit}`" for commit in sorted({str(one.provenance["commit"]) for one in records}))
    versions = ", ".join(sorted({f"torch {one.provenance['torch']}" for one in records}))
    times = sorted(one.provenance["time"] for one in records)
    loads = [load for one in records for load in (one.load_average["before"][0], one.load_average["after"][0])]
    return [
        f"{len(records)} record(s) of {times[0]} to {times[-1]}, {versions}, commit(s) {commits}; load average "
        f"{min(loads):g} to {max(loads):g}."
    ]


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them.

    >>> duration(1.234), duration(0.0456), duration(0.000789)
    ('1.23 s', '45.6 ms', '789 µs')
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:,.3g} {name}" if seconds / unit < 100 else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e6:.3g} µs"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], num_words: int = 1) -> list[str]:
    """A table of Markdown; its first columns are words, the others figures."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in escaped]
    return [lines[0], "|" + "---|" * num_words + "---:|" * (len(headings) - num_words), *lines[1:]]
