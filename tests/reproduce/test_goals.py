"""The goals: of which datasets, beside which of our figures."""

from __future__ import annotations

import pytest

from refactorgnn.reproduce.cells import Cell
from refactorgnn.reproduce.goals import goal_lines, goals_by_table
from refactorgnn.reproduce.records import Aggregate
from refactorgnn.reproduce.tables import TABLES


@pytest.mark.parametrize("name", ["inductive", "transductive"])
def test_goals_are_of_the_columns_and_metrics_of_their_table(name: str) -> None:
    columns = {column.name for column in TABLES[name].columns}
    titles = {metric.title for metric in TABLES[name].metrics}
    for title, goals in goals_by_table()[name]["metrics"].items():
        assert title in titles
        assert set(goals["goal"]) in (columns, set())
        assert set(goals["for scale"]) in (columns, set())


def test_a_mean_is_given_where_every_column_has_a_figure() -> None:
    table = TABLES["transductive"]
    (metric,) = table.metrics
    rows = {"DistMult": (0.1, 0.2, 0.6), "R-GCN": (0.1, None, 0.4), "ReFactorGNN(inf)": (0.1, None, None)}
    cells = [
        Cell(row, column, metric, None if figure is None else Aggregate.of([figure]), None)
        for row in table.rows
        for column, figure in zip(table.columns, rows.get(row.name, ()), strict=False)
    ]
    lines = goal_lines(table, cells)
    assert "| goal | 0.950 | 0.475 | 0.370 | 0.5983 |" in lines
    assert "| DistMult | 0.100 | 0.200 | 0.600 | 0.3000 |" in lines
    assert "| R-GCN | 0.100 | – | 0.400 | – |" in lines
    assert "| ReFactorGNN(inf) | 0.100 | – | – | – |" in lines
    assert goal_lines(TABLES["ablation"], []) == []


def test_a_row_with_figures_in_few_columns_is_left_out() -> None:
    table = TABLES["inductive"]
    metric = next(one for one in table.metrics if one.title == "Hits@10, full ranking")
    columns = {"best [R]": 4, "best [T]": 3}  # of twelve
    cells = [
        Cell(row, column, metric, Aggregate.of([0.5]), None)
        for row in table.rows
        for column in table.columns[: columns.get(row.name, 0)]
    ]
    shown = [line.split(" | ")[0] for line in goal_lines(table, cells)]
    assert "| best [R]" in shown
    assert "| best [T]" not in shown
