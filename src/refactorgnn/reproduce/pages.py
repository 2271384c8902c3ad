"""Markdown pages, made of the records and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from refactorgnn.reproduce.cells import Cell, Metric, Published, Row
from refactorgnn.reproduce.costs import Cost, used_records
from refactorgnn.reproduce.figures import RECIPE_FIGURES, TABLE_FIGURES
from refactorgnn.reproduce.goals import goal_lines
from refactorgnn.reproduce.recipe import RECIPES, Recipe
from refactorgnn.reproduce.records import Aggregate, Record
from refactorgnn.reproduce.tables import NUM_SEEDS, TABLES, Table
from refactorgnn.storage import write_text

MISSING = "–"


def write_pages(
    folder: str | Path, table: str, records: Mapping[str, Record], num_seeds: int = NUM_SEEDS
) -> list[Path]:
    """Write ``FOLDER/TABLE.md``, and its figure, if there are records of the table.

    The pages of other tables that are in the folder are written again: they may share experiments with this one.

    Args:
        folder: Where to write.
        table: The name of the table.
        records: The records, by key.
        num_seeds: How many seeds a figure of ``table`` should be of; others are of the usual number.
    """
    written = []
    for name in (name for name in TABLES if name == table or (Path(folder) / f"{name}.md").is_file()):
        wanted = num_seeds if name == table else NUM_SEEDS
        text = page(TABLES[name], records, wanted)
        if text is None:
            continue
        _draw_figures(TABLES[name], records, wanted, Path(folder))
        write_text(path := Path(folder) / f"{name}.md", text)
        written.append(path)
    return written


def _draw_figures(table: Table, records: Mapping[str, Record], num_seeds: int, folder: Path) -> None:
    if table.name not in {*RECIPE_FIGURES, *TABLE_FIGURES}:
        return
    found = {recipe.name: table.cells(recipe, records, num_seeds) for recipe in map(Recipe.load, RECIPES)}
    cells = {recipe: there for recipe, there in found.items() if any(cell.ours for cell in there)}
    if draw := RECIPE_FIGURES.get(table.name):
        for recipe, there in cells.items():
            draw(there, folder / _figure(table.name, recipe))
    if table.name in TABLE_FIGURES:
        draw_all, _ = TABLE_FIGURES[table.name]
        draw_all(cells, folder / table.name)


def page(table: Table, records: Mapping[str, Record], num_seeds: int = NUM_SEEDS) -> str | None:
    """The page of a table, with a part for each recipe; None if there are no records of it."""
    parts = []
    for recipe in map(Recipe.load, RECIPES):
        used = used_records(table, recipe, records, num_seeds)
        if used:
            parts.append(_recipe_part(table, recipe, table.cells(recipe, records, num_seeds), used, num_seeds))
    if not parts:
        return None
    return "\n".join([*_introduction(table, num_seeds), *(line for part in parts for line in part)])


def _introduction(table: Table, num_seeds: int) -> list[str]:
    return [
        f"# {table.title}",
        "",
        f"Written by `refactorgnn reproduce {table.name}` from the records in [records](records): no figure of ours is "
        "typed by hand.",
        "",
        f"**Protocol.** {table.protocol}",
        "",
        f"**How to read it.** In each cell our mean ± sample standard deviation over {num_seeds} seeds (of fewer "
        "where their number is given) and below it the paper's figure, if it has one. Ours is bold where it is as good "
        f"or better. {MISSING}: not measured.",
        "",
        *_table_figure(table),
    ]


def _table_figure(table: Table) -> list[str]:
    if table.name not in TABLE_FIGURES:
        return []
    _, caption = TABLE_FIGURES[table.name]
    return [f"![{table.title}]({table.name}.svg)", "", caption, ""]


def _recipe_part(
    table: Table, recipe: Recipe, cells: list[Cell], used: dict[str, list[Record]], num_seeds: int
) -> list[str]:
    shown = [row for row in table.measured_rows(recipe) if any(cell.ours and cell.row is row for cell in cells)]
    lines = [f"## Recipe `{recipe.name}`", "", recipe.description, "", *_selection(table, recipe, shown)]
    if table.name in RECIPE_FIGURES:
        lines += [f"![{table.title}, recipe {recipe.name}]({_figure(table.name, recipe.name)}.svg)", ""]
    for metric in table.metrics:
        lines += [
            f"### {metric.title} (`{recipe.name}`)",
            "",
            *_metric_table(table, metric, shown, cells, num_seeds),
            "",
        ]
    if any(cell.published for cell in cells):
        lines += [f"### Where we do not reach the paper (`{recipe.name}`)", "", *_shortfalls(table, recipe, cells), ""]
    if recipe.name == "best" and (goals := goal_lines(table, cells)):
        lines += [f"### Beyond the paper (`{recipe.name}`)", "", *goals]
    command = f"refactorgnn reproduce {table.name} --recipe {recipe.name} --seeds {num_seeds} --out docs/results"
    lines += [f"### Cost (`{recipe.name}`)", "", *_cost(used), ""]
    return [*lines, "To measure what is missing, and write this page again:", "", "```", command, "```", ""]


def _selection(table: Table, recipe: Recipe, shown: Sequence[Row]) -> list[str]:
    """Which rows are not shown for want of a run, and which settings of the others nobody has searched for yet."""
    idle = [row.name for row in table.measured_rows(recipe) if row not in shown]
    missing = [f"Left out, since no run of them is recorded: {', '.join(idle)}.", ""] if idle else []
    rows = dict.fromkeys(term for row in shown for term in row.terms)
    open_rows = {
        row: [name for name in table.datasets if recipe.has(row, name) and not recipe.is_selected(row, name)]
        for row in rows
    }
    named = [
        row if len(datasets) == len(table.datasets) else f"{row} ({', '.join(datasets)})"
        for row, datasets in open_rows.items()
        if datasets
    ]
    if not named:
        return [*missing, "All settings that leave a choice were selected by a search on validation MRR.", ""]
    return [
        *missing,
        "All other settings that leave a choice were selected by a search on validation MRR; these were not, but are "
        f"their authors' or one point that seemed reasonable: {', '.join(named)}.",
        "",
    ]


def _metric_table(table: Table, metric: Metric, shown: Sequence[Row], cells: list[Cell], num_seeds: int) -> list[str]:
    found = {(cell.row.name, cell.column): cell for cell in cells if cell.metric is metric}
    shown = [row for row in shown if any(cell.ours for (name, _), cell in found.items() if name == row.name)]
    headings = ["", *(column.name for column in table.columns)]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in shown:
        in_row = [found.get((row.name, column)) for column in table.columns]
        lines.append("| " + " | ".join([row.name, *(_cell(cell, num_seeds) for cell in in_row)]) + " |")
    return lines + _rivals(table, metric, {row.name for row in shown})


def _rivals(table: Table, metric: Metric, measured: Set[str]) -> list[str]:
    """Rows of other papers that are not measured, where there are figures of this metric."""
    lines = []
    for name in (name for name in table.rivals if name not in measured):
        cells = [Cell.published_only(Row(name), column, metric) for column in table.columns]
        if any(cell.published for cell in cells):
            figures = [published_text(cell.published) for cell in cells]
            lines.append("| " + " | ".join([f"{name} (published)", *figures]) + " |")
    return lines


def _cell(cell: Cell | None, num_seeds: int) -> str:
    if cell is None:
        return ""
    ours = "<br>".join(our_texts(cell, num_seeds))
    if cell.published is None:
        return ours
    is_reached = cell.ours is not None and cell.shortfall is None
    return f"{f'**{ours}**' if is_reached else ours}<br>{published_text(cell.published)}"


def our_texts(cell: Cell, num_seeds: int) -> list[str]:
    """Our figure, with the number of seeds where it is not of all of them; one for each kind of machine that counts."""
    if cell.by_machine:
        return [f"{name} {_text(ours, cell.metric, num_seeds)}" for name, ours in cell.by_machine.items()]
    return [MISSING if cell.ours is None else _text(cell.ours, cell.metric, num_seeds)]


def _text(ours: Aggregate, metric: Metric, num_seeds: int) -> str:
    if metric.name == "num_parameters":
        return f"{ours.mean:,.0f}"
    digits = 3 if metric.is_score or ours.mean < 1 else 1 if ours.mean < 100 else 0
    deviation = "" if ours.std is None else f" ± {ours.std:,.{digits}f}"
    return f"{ours.mean:,.{digits}f}{deviation}" + ("" if ours.n == num_seeds else f" ({ours.n} of {num_seeds})")


def published_text(figure: Published | None) -> str:
    """The paper's figure."""
    if figure is None:
        return MISSING
    return f"{figure.mean:.3f}" + ("" if figure.std is None else f" ± {figure.std:.3f}")


def _shortfalls(table: Table, recipe: Recipe, cells: list[Cell]) -> list[str]:
    """By how much each row falls short, worst first, and what was tried about it."""
    lines = []
    for metric in table.metrics:
        for row in table.rows:
            short = [cell for cell in cells if cell.row is row and cell.metric is metric and cell.shortfall is not None]
            if short:
                short.sort(key=lambda cell: -(cell.shortfall or 0.0))
                words = ", ".join(f"{cell.column.name} by {cell.shortfall:.3f}" for cell in short)
                lines.append(f"- {row.name}, {metric.title}: {words}.{_notes(row, recipe)}")
    return lines or ["Every figure measured so far is as good as the paper's or better."]


def _notes(row: Row, recipe: Recipe) -> str:
    notes = dict.fromkeys(recipe.rows[term].notes for term in row.terms if recipe.rows[term].notes)
    return "".join(f" What was tried: {' '.join(note.split())}" for note in notes)


def _cost(used: dict[str, list[Record]]) -> list[str]:
    lines = ["| | runs | seconds a run | seconds in all |", "|---|---:|---:|---:|"]
    for name, records in used.items():
        cost = Cost.of(records)
        lines.append(f"| {name} | {cost.num_runs} | {cost.seconds / cost.num_runs:.1f} | {cost.seconds:,.0f} |")
    whole = Cost.of(record for records in used.values() for record in records)
    lines.append(f"| all | {whole.num_runs} | {whole.seconds / whole.num_runs:.1f} | {whole.seconds:,.0f} |")
    commits = ", ".join(f"`{commit}`" for commit in whole.commits)
    return [*lines, "", f"On {'; '.join(whole.hardware)}. Commits: {commits}."]


def _figure(table: str, recipe: str) -> str:
    return f"{table}-{recipe}"
