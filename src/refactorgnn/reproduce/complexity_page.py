"""The page and the figures of a complexity record; no figure in them is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refactorgnn.reproduce.complexity import (
    Quantity,
    exponent,
    models_of,
    points_of,
    published_complexity,
    published_range,
    value_of,
)
from refactorgnn.reproduce.plots import Drawing, Panel, Series, draw_lines
from refactorgnn.storage import write_text

_COLUMNS = ("parameters", "training_memory", "inference_memory", "training_time", "inference_time")
# Which formula of the paper a measured model is compared with. Unrolled training goes through all layers at once, which
# the paper's ReFactorGNN does in inference only.
_PUBLISHED: Mapping[str, tuple[str, Mapping[Quantity, str]]] = {
    "ReFactorGNN, unrolled": (
        "ReFactorGNN",
        {
            "step_seconds": "inference_time",
            "layer_seconds": "inference_time",
            "memory_mb": "inference_memory",
            "num_parameters": "parameters",
        },
    )
}
_TRAINING: Mapping[Quantity, str] = {
    "step_seconds": "training_time",
    "layer_seconds": "training_time",
    "memory_mb": "training_memory",
    "num_parameters": "parameters",
}
_QUANTITIES: Mapping[Quantity, str] = {
    "layer_seconds": "Time of the layers",
    "step_seconds": "Time of a step, loss included",
    "memory_mb": "Memory",
    "num_parameters": "Parameters",
}
_FIGURES: Mapping[Quantity, tuple[str, str]] = {
    "step_seconds": ("complexity-time", "seconds of a step"),
    "memory_mb": ("complexity-memory", "memory of a step, MB"),
}
_NOTES = """\
## How to read it

- A step of every model ends in the same loss: 1-vs-all over all questions, |Q| × |V| × d multiplications, which the
  paper's formulas of GAT and R-GCN leave out. It was timed by itself; *time of the layers* is a step less that.
- |Q| is the number of distinct questions (head, relation), reciprocals included: at most 2|T|, fewer where questions
  have several answers. A ReFactor layer works on questions, not on triples, so with |V| fixed its time grows less than
  |T|.
- The paper counts the states in the memory, O(|V|d) for each layer that is kept. Here a ReFactor layer also keeps the
  vectors of its questions, O(|Q|d), and PyG's GAT a vector for each edge, O(|T|d). Never kept is the |Q| × |V| matrix.
- R-GCN with B bases takes B|V|d² multiplications and keeps (|Q| + B|V|)d numbers in a layer: sums over the facts come
  first, and no matrix of a relation is ever made.
- Parameters include the decoder's 2|R|d, which depend on L for no model. R-GCN's matrices are made of 4 bases, so that
  their number does not grow with |R|.
- Each number of the |Q| × |V| matrix takes one exponential, whatever d is: below some hundreds, time grows less than d.
- Exponents of small sizes are too low: what does not grow (calls, the loss, the budget of temporaries) weighs more
  there.
"""
# Of a record in which a model that asks fact by fact was timed on some facts.
_ASKING = """\
NBFNet goes through its layers for each question anew. It was timed on {batch_size} facts, half of them asked for their
tails and half for their heads, with 32 wrong answers each, while all were out of the graph; a step is that, times
|T| / {batch_size}, for the paper counts |T| questions. Its memory is that of the questions that are computed at once,
one where the budget holds no more, and of the gradients; the paper counts the states of all |T| questions.
"""


def complexity_page(record: Mapping[str, Any]) -> str:
    """The record as a page of Markdown."""
    return "\n".join(
        [
            *_introduction(record),
            *_published_table(),
            *_exponents_section(record),
            *_figures_section(),
            _NOTES,
            *_points_section(record),
            *_origin_section(record),
        ]
    )


def write_complexity(record: Mapping[str, Any], folder: str | Path) -> list[Path]:
    """Write the record, its page and its figures into ``folder``; the files."""
    folder = Path(folder)
    # The record first: minutes went into it, and figures fail where matplotlib is missing.
    write_text(folder / "complexity.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    write_text(folder / "complexity.md", complexity_page(record))
    figures = [path for drawing in draw_complexity(record, folder) for path in (drawing.svg, drawing.png)]
    return [folder / "complexity.json", folder / "complexity.md", *figures]


def draw_complexity(record: Mapping[str, Any], folder: str | Path) -> list[Drawing]:
    """Draw time and memory against each size, both logarithmic: the slope of a line is its exponent."""
    return [
        draw_lines([_panel(record, sweep, quantity, label) for sweep in record["sweeps"]], folder, name, columns=2)
        for quantity, (name, label) in _FIGURES.items()
    ]


def formula(terms: Iterable[Mapping[str, int]]) -> str:
    """The terms of a cost as a person writes them.

    >>> formula([{"L": 1, "V": 1, "d": 2}, {"L": 1, "T": 1, "d": 1}])
    'O(L|V|d² + L|T|d)'
    """
    symbols = {"L": "L", "R": "|R|", "T": "|T|", "V": "|V|", "d": "d"}
    powers = {0: None, 1: "", 2: "²"}

    def product(term: Mapping[str, int]) -> str:
        return "".join(text + str(powers[term[name]]) for name, text in symbols.items() if term.get(name, 0))

    return f"O({' + '.join(map(product, terms))})"


def _panel(record: Mapping[str, Any], sweep: Mapping[str, Any], quantity: Quantity, label: str) -> Panel:
    series = []
    for style, model in enumerate(models_of(record)):
        points = points_of(record, model, sweep)
        x = tuple(float(point[sweep["field"]]) for point in points)
        series.append(Series(model, x, tuple(value_of(point, quantity) for point in points), style))
    return Panel(sweep["axis"], label, tuple(series), logarithmic=True)


def _introduction(record: Mapping[str, Any]) -> list[str]:
    base, settings = record["base"], record["settings"]
    where = record["provenance"]["hardware"]
    return [
        "# Complexity",
        "",
        "Made by `refactorgnn.reproduce.complexity_page` from [complexity.json](complexity.json).",
        "",
        "What a step of training costs as one size grows: seconds (the fastest of the repeated steps), the peak of",
        "memory above graph and parameters, and parameters. Synthetic graphs with a skewed distribution of degrees;",
        f"every point in a process of its own on {where.get('gpu', where['cpu'])}, {where['threads']} thread(s). Sizes",
        f"that do not change: L = {base['num_layers']}, d = {base['dim']}, |V| = {base['num_entities']:,}, "
        f"|R| = {base['num_relations']:,}, |T| = {base['num_triples']:,}.",
        f"All facts are messages and targets; random features; {settings['memory_budget_mb']} MiB for temporaries of "
        "the score products; plain SGD.",
        *(["", _ASKING.format(**record["settings_of_asking"]).rstrip()] if "settings_of_asking" in record else []),
        *(["", "**A quick measurement of tiny sizes: its exponents mean nothing.**"] * record["options"]["quick"]),
        "",
    ]


def _published_table() -> list[str]:
    published = published_complexity()
    rows = [
        [model, *(formula(formulas[column]) for column in _COLUMNS)] for model, formulas in published["models"].items()
    ]
    headings = ["model", *(column.replace("_", " ") for column in _COLUMNS)]
    return ["## The paper's table", "", *_table(headings, rows), ""]


def _exponents_section(record: Mapping[str, Any]) -> list[str]:
    sweeps = record["sweeps"]
    lines = [
        "## Measured exponents",
        "",
        "The slope of a least-squares line through the logarithms. In brackets the exponents that the paper's formula",
        "allows: one, or those of its terms. ReFactorGNN unrolled is compared with the paper's formula of inference,",
        "which goes through all layers too.",
        "",
    ]
    for quantity, title in _QUANTITIES.items():
        rows = [
            [model, formula(_terms(model, quantity)), *(_cell(record, model, sweep, quantity) for sweep in sweeps)]
            for model in models_of(record)
        ]
        headings = ["model", "paper", *(sweep["axis"] for sweep in sweeps)]
        lines += [f"### {title}", "", *_table(headings, rows), ""]
    return lines


def _cell(record: Mapping[str, Any], model: str, sweep: Mapping[str, Any], quantity: Quantity) -> str:
    measured = exponent(record, model, sweep, quantity)
    low, high = published_range(_terms(model, quantity), sweep["symbols"])
    ours = "—" if measured is None else f"{measured:.2f}".replace("-0.00", "0.00")
    return f"{ours} ({low})" if low == high else f"{ours} ({low} to {high})"


def _terms(model: str, quantity: Quantity) -> list[dict[str, int]]:
    row, columns = _PUBLISHED.get(model, (model.split(",")[0], _TRAINING))
    terms: list[dict[str, int]] = published_complexity()["models"][row][columns[quantity]]
    return terms


def _figures_section() -> list[str]:
    lines = ["## Figures", ""]
    for name, label in _FIGURES.values():
        lines += [f"![{label[0].upper()}{label[1:]}, against L, d and |T|]({name}.svg)", ""]
    return lines


def _points_section(record: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            point["model"],
            *(f"{point[name]:,}" for name in ("num_layers", "dim", "num_entities", "num_triples", "num_queries")),
            _milliseconds(point["step_seconds"]),
            _milliseconds(point["loss_seconds"]),
            f"{point['memory_mb']:,.1f}",
            f"{point['num_parameters']:,}",
        ]
        for point in record["points"]
    ]
    headings = ["model", "L", "d", "|V|", "|T|", "|Q|", "step, ms", "loss alone, ms", "memory, MB", "parameters"]
    return ["## Points", "", *_table(headings, rows), ""]


def _origin_section(record: Mapping[str, Any]) -> list[str]:
    origin, load = record["provenance"], record["load_average"]
    cost = f" in {record['seconds']:,.0f} s" if "seconds" in record else ""
    return [
        f"Measured with `{origin['command']}`{cost} at commit `{origin['commit']}`, torch {origin['torch']}, "
        f"{origin['time']}; load average {load['before'][0]} before and {load['after'][0]} after. {record['note']}",
        "",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of Markdown; its first column is words, the others figures."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in escaped]
    return [lines[0], "|---|" + "---:|" * (len(headings) - 1), *lines[1:]]
