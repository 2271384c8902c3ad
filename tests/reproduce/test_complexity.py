"""Costs: exponents are recovered, the page says what the record says, and a measurement really runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from refactorgnn.errors import UserError
from refactorgnn.reproduce import complexity
from refactorgnn.reproduce.complexity import (
    MODELS,
    ComplexityOptions,
    Size,
    Sweep,
    exponent,
    fitted_exponent,
    measure_complexity,
    measure_point,
    models_of,
    published_complexity,
    published_range,
)
from refactorgnn.reproduce.complexity_page import _NOTES, complexity_page, formula, write_complexity

RESULTS = Path(__file__).parents[2] / "docs" / "results"
_KINDS = ("svg", "png")


def test_planted_exponents_are_recovered() -> None:
    sizes = [1, 2, 4, 8, 12]
    for planted in (-0.5, 0.0, 1.0, 1.7, 2.0):
        assert fitted_exponent(sizes, [3e-4 * size**planted for size in sizes]) == pytest.approx(planted, abs=1e-9)


def test_the_fit_is_that_of_least_squares() -> None:
    sizes, values = [1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 16.0]
    # With x = 0, 1, 2, 3 and y = 0, 1, 2, 4 in powers of 2: Σ(x − 1.5)(y − 1.75) / Σ(x − 1.5)² = 6.5 / 5.
    assert fitted_exponent(sizes, values) == pytest.approx(1.3, abs=1e-12)


@pytest.mark.parametrize(("sizes", "values"), [([1, 2], [1.0, 0.0]), ([3, 3], [1.0, 2.0]), ([3], [1.0])])
def test_where_there_is_no_exponent_there_is_none(sizes: list[float], values: list[float]) -> None:
    assert fitted_exponent(sizes, values) is None


def test_the_papers_table() -> None:
    """Its formulas, from the text of the paper; factors are sorted."""
    models = published_complexity()["models"]
    rows = {model: [formula(terms) for terms in formulas.values()] for model, formulas in models.items()}
    gat_time, rgcn_time = "O(L|V|d² + L|T|d)", "O(L|T|d² + L|V|d²)"
    nbf_memory, nbf_time = "O(L|T||V|d)", "O(L|T|²d + L|T||V|d²)"
    assert rows == {
        "GAT": ["O(Ld²)", "O(L|V|d)", "O(L|V|d)", gat_time, gat_time],
        "R-GCN": ["O(L|R|d²)", "O(L|V|d)", "O(L|V|d)", rgcn_time, rgcn_time],
        "NBFNet": ["O(L|R|d²)", nbf_memory, nbf_memory, nbf_time, nbf_time],
        "ReFactorGNN": ["O(|R|d)", "O(|V|d)", "O(L|V|d)", "O(|T||V|d)", "O(L|T||V|d)"],
    }
    time = models["GAT"]["training_time"]
    ranges = {symbols: published_range(time, symbols) for symbols in ("L", "d", "T", "TV", "R")}
    assert ranges == {"L": (1, 1), "d": (1, 2), "T": (0, 1), "TV": (1, 1), "R": (0, 0)}


def planted_record() -> dict[str, Any]:
    """Steps of (k + 1) ms · L^(k/2) |T|, k the number of the model, half of it loss; memory of 2 MB · L |T|."""
    base = Size(2, 16, 60, 3, 240)
    layers = [Size(n, 16, 60, 3, 240) for n in (1, 2)]
    graphs = [Size(2, 16, 60 * n, 3, 240 * n) for n in (1, 4)]
    sweeps = [
        Sweep("layers", "layers L", ("L",), "num_layers", tuple(layers)),
        Sweep("graph", "triples |T|", ("T", "V"), "num_triples", tuple(graphs)),
    ]
    points = []
    for number, model in enumerate(MODELS):
        for size in dict.fromkeys([*layers, *graphs]):
            seconds = 1e-3 * (number + 1) * size.num_layers ** (number / 2) * size.num_triples / 240
            points.append(
                {
                    "model": model,
                    **vars(size),
                    "num_queries": 300,
                    "num_parameters": 96,
                    "step_seconds": seconds,
                    "loss_seconds": seconds / 2,
                    "memory_mb": 2.0 * size.num_layers * size.num_triples / 240,
                }
            )
    return {
        "options": {"quick": True},
        "settings": {"memory_budget_mb": 8},
        "settings_of_asking": {"batch_size": 5},
        "base": vars(base),
        "sweeps": [{**vars(sweep), "sizes": [vars(size) for size in sweep.sizes]} for sweep in sweeps],
        "points": points,
        "seconds": 1234.5,
        "load_average": {"before": [0.5, 1, 1], "after": [1.5, 1, 1]},
        "note": "A note.",
        "provenance": {
            "command": "run.py --quick",
            "commit": "abc",
            "torch": "2",
            "time": "then",
            "hardware": {"cpu": "a processor", "threads": 1},
        },
    }


EXPECTED = r"""# Complexity

Made by `refactorgnn.reproduce.complexity_page` from [complexity.json](complexity.json).

What a step of training costs as one size grows: seconds (the fastest of the repeated steps), the peak of
memory above graph and parameters, and parameters. Synthetic graphs with a skewed distribution of degrees;
every point in a process of its own on a processor, 1 thread(s). Sizes
that do not change: L = 2, d = 16, |V| = 60, |R| = 3, |T| = 240.
All facts are messages and targets; random features; 8 MiB for temporaries of the score products; plain SGD.

NBFNet goes through its layers for each question anew. It was timed on 5 facts, half of them asked for their
tails and half for their heads, with 32 wrong answers each, while all were out of the graph; a step is that, times
|T| / 5, for the paper counts |T| questions. Its memory is that of the questions that are computed at once,
one where the budget holds no more, and of the gradients; the paper counts the states of all |T| questions.

**A quick measurement of tiny sizes: its exponents mean nothing.**

## The paper's table

| model | parameters | training memory | inference memory | training time | inference time |
|---|---:|---:|---:|---:|---:|
| GAT | O(Ld²) | O(L\|V\|d) | O(L\|V\|d) | O(L\|V\|d² + L\|T\|d) | O(L\|V\|d² + L\|T\|d) |
| R-GCN | O(L\|R\|d²) | O(L\|V\|d) | O(L\|V\|d) | O(L\|T\|d² + L\|V\|d²) | O(L\|T\|d² + L\|V\|d²) |
| NBFNet | O(L\|R\|d²) | O(L\|T\|\|V\|d) | O(L\|T\|\|V\|d) | O(L\|T\|²d + L\|T\|\|V\|d²) | O(L\|T\|²d + L\|T\|\|V\|d²) |
| ReFactorGNN | O(\|R\|d) | O(\|V\|d) | O(L\|V\|d) | O(\|T\|\|V\|d) | O(L\|T\|\|V\|d) |

## Measured exponents

The slope of a least-squares line through the logarithms. In brackets the exponents that the paper's formula
allows: one, or those of its terms. ReFactorGNN unrolled is compared with the paper's formula of inference,
which goes through all layers too.

### Time of the layers

| model | paper | layers L | triples \|T\| |
|---|---:|---:|---:|
| ReFactorGNN, layer-wise | O(\|T\|\|V\|d) | 0.00 (0) | 1.00 (2) |
| ReFactorGNN, unrolled | O(L\|T\|\|V\|d) | 0.50 (1) | 1.00 (2) |
| GAT | O(L\|V\|d² + L\|T\|d) | 1.00 (1) | 1.00 (1) |
| R-GCN | O(L\|T\|d² + L\|V\|d²) | 1.50 (1) | 1.00 (1) |
| NBFNet | O(L\|T\|²d + L\|T\|\|V\|d²) | 2.00 (1) | 1.00 (2) |

### Time of a step, loss included

| model | paper | layers L | triples \|T\| |
|---|---:|---:|---:|
| ReFactorGNN, layer-wise | O(\|T\|\|V\|d) | 0.00 (0) | 1.00 (2) |
| ReFactorGNN, unrolled | O(L\|T\|\|V\|d) | 0.50 (1) | 1.00 (2) |
| GAT | O(L\|V\|d² + L\|T\|d) | 1.00 (1) | 1.00 (1) |
| R-GCN | O(L\|T\|d² + L\|V\|d²) | 1.50 (1) | 1.00 (1) |
| NBFNet | O(L\|T\|²d + L\|T\|\|V\|d²) | 2.00 (1) | 1.00 (2) |

### Memory

| model | paper | layers L | triples \|T\| |
|---|---:|---:|---:|
| ReFactorGNN, layer-wise | O(\|V\|d) | 1.00 (0) | 1.00 (1) |
| ReFactorGNN, unrolled | O(L\|V\|d) | 1.00 (1) | 1.00 (1) |
| GAT | O(L\|V\|d) | 1.00 (1) | 1.00 (1) |
| R-GCN | O(L\|V\|d) | 1.00 (1) | 1.00 (1) |
| NBFNet | O(L\|T\|\|V\|d) | 1.00 (1) | 1.00 (2) |

### Parameters

| model | paper | layers L | triples \|T\| |
|---|---:|---:|---:|
| ReFactorGNN, layer-wise | O(\|R\|d) | 0.00 (0) | 0.00 (0) |
| ReFactorGNN, unrolled | O(\|R\|d) | 0.00 (0) | 0.00 (0) |
| GAT | O(Ld²) | 0.00 (1) | 0.00 (0) |
| R-GCN | O(L\|R\|d²) | 0.00 (1) | 0.00 (0) |
| NBFNet | O(L\|R\|d²) | 0.00 (1) | 0.00 (0) |

## Figures

![Seconds of a step, against L, d and |T|](complexity-time.svg)

![Memory of a step, MB, against L, d and |T|](complexity-memory.svg)

NOTES

## Points

| model | L | d | \|V\| | \|T\| | \|Q\| | step, ms | loss alone, ms | memory, MB | parameters |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| ReFactorGNN, layer-wise | 1 | 16 | 60 | 240 | 300 | 1.0 | 0.5 | 2.0 | 96 |
| ReFactorGNN, layer-wise | 2 | 16 | 60 | 240 | 300 | 1.0 | 0.5 | 4.0 | 96 |
| ReFactorGNN, layer-wise | 2 | 16 | 240 | 960 | 300 | 4.0 | 2.0 | 16.0 | 96 |
| ReFactorGNN, unrolled | 1 | 16 | 60 | 240 | 300 | 2.0 | 1.0 | 2.0 | 96 |
| ReFactorGNN, unrolled | 2 | 16 | 60 | 240 | 300 | 2.8 | 1.4 | 4.0 | 96 |
| ReFactorGNN, unrolled | 2 | 16 | 240 | 960 | 300 | 11.3 | 5.7 | 16.0 | 96 |
| GAT | 1 | 16 | 60 | 240 | 300 | 3.0 | 1.5 | 2.0 | 96 |
| GAT | 2 | 16 | 60 | 240 | 300 | 6.0 | 3.0 | 4.0 | 96 |
| GAT | 2 | 16 | 240 | 960 | 300 | 24.0 | 12.0 | 16.0 | 96 |
| R-GCN | 1 | 16 | 60 | 240 | 300 | 4.0 | 2.0 | 2.0 | 96 |
| R-GCN | 2 | 16 | 60 | 240 | 300 | 11.3 | 5.7 | 4.0 | 96 |
| R-GCN | 2 | 16 | 240 | 960 | 300 | 45.3 | 22.6 | 16.0 | 96 |
| NBFNet | 1 | 16 | 60 | 240 | 300 | 5.0 | 2.5 | 2.0 | 96 |
| NBFNet | 2 | 16 | 60 | 240 | 300 | 20.0 | 10.0 | 4.0 | 96 |
| NBFNet | 2 | 16 | 240 | 960 | 300 | 80.0 | 40.0 | 16.0 | 96 |

Measured with `run.py --quick` in 1,234 s at commit `abc`, torch 2, then; load average 0.5 before and 1.5 after. A note.
"""


def test_the_page_of_a_record() -> None:
    page = complexity_page(planted_record())
    assert page.replace(_NOTES, "NOTES\n") == EXPECTED


def test_the_committed_page_is_made_of_the_committed_record() -> None:
    record = json.loads((RESULTS / "complexity.json").read_text(encoding="utf-8"))
    assert (RESULTS / "complexity.md").read_text(encoding="utf-8") == complexity_page(record)
    for name in ("complexity-time", "complexity-memory"):
        assert all(model in (RESULTS / f"{name}.svg").read_text(encoding="utf-8") for model in models_of(record))
        assert (RESULTS / f"{name}.png").is_file()


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_record_page_and_figures_are_written(tmp_path: Path) -> None:
    record = planted_record()
    paths = write_complexity(record, tmp_path)
    names = {"complexity.json", "complexity.md", *(f"complexity-{w}.{s}" for w in ("time", "memory") for s in _KINDS)}
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()} == names
    read = json.loads((tmp_path / "complexity.json").read_text(encoding="utf-8"))
    assert complexity_page(read) == (tmp_path / "complexity.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("model", MODELS)
def test_a_point_is_measured(model: str) -> None:
    threads = torch.get_num_threads()
    point = measure_point(model, Size(3, 16, 40, 3, 200), ComplexityOptions(quick=True, seconds=0.01))
    torch.set_num_threads(threads)
    assert point["step_seconds"] > 0
    assert (point["loss_seconds"] > 0) == (model != "NBFNet")  # its scores are made by the layers
    # Of the docstrings of the models: the decoder's 2 |R| d, and for L layers …
    nbfnet = 3 * (6 * 16 * 17 + 13 * 16**2 + 3 * 16) + 32 * 33 + 33  # … and a decoder of two layers
    layers = {"GAT": 3 * (16**2 + 8 * 16 + 4 * 16 + 6 * 8), "R-GCN": 3 * (5 * 16**2 + 6 * 4 + 16), "NBFNet": nbfnet}
    assert point["num_parameters"] == 6 * 16 + layers.get(model, 0)
    assert 0 < point["num_queries"] <= 400


@pytest.mark.slow
def test_a_quick_measurement_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = "ReFactorGNN, layer-wise"
    monkeypatch.setattr(complexity, "MODELS", {model: MODELS[model]})  # one is enough: a process for each point
    record = json.loads(json.dumps(measure_complexity(ComplexityOptions(quick=True, seconds=0.01), progress=False)))
    assert len(record["points"]) == 5  # the base, and one more on each of four sweeps
    assert all(point["step_seconds"] > 0 for point in record["points"])
    exponents = [exponent(record, model, sweep, "num_parameters") for sweep in record["sweeps"]]
    assert exponents == pytest.approx([0, 1, 0, 0], abs=1e-9)  # O(|R|d)


def test_a_measurement_that_was_interrupted_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept, measured = tmp_path / "complexity.partial.json", list[tuple[str, Size]]()

    def measure(model: str, size: Size, options: ComplexityOptions) -> dict[str, Any]:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append((model, size))
        return {"model": model, **vars(size), "seconds": 2.0}

    monkeypatch.setattr(complexity, "_measured", measure)
    options = ComplexityOptions(quick=True)
    sizes = dict.fromkeys(size for sweep in options.sweeps for size in sweep.sizes)
    with pytest.raises(KeyboardInterrupt):
        measure_complexity(options, kept=kept, progress=False)
    first = measured.copy()
    monkeypatch.setattr(
        complexity,
        "_measured",
        lambda *point: measured.append(point[:2]) or {"model": point[0], **vars(point[1]), "seconds": 2.0},
    )
    record = measure_complexity(options, kept=kept, progress=False)
    assert measured == [(model, size) for model in MODELS for size in sizes]  # the first three once
    assert len(first) == 3
    assert record["seconds"] == 2.0 * len(measured)
    measure_complexity(replace(options, seed=1), kept=kept, progress=False)  # of other options: measured again
    assert len(measured) == 2 * len(MODELS) * len(sizes)


@pytest.mark.parametrize("options", [{"threads": 0}, {"seconds": 0.0}, {"device": "abacus"}])
def test_what_cannot_be_measured_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        measure_complexity(ComplexityOptions(quick=True, **options), progress=False)


def test_what_asks_fact_by_fact_is_timed_on_a_few_and_counted_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def seconds_of(trial: complexity._Trial, run: Callable[[], None], seconds: float) -> float:
        asked.clear()
        forward = trial.regime.forward
        monkeypatch.setattr(
            trial.regime, "forward", lambda batch: (asked.append(len(batch.questions)), forward(batch))[1]
        )
        run()
        return 0.5

    monkeypatch.setattr(complexity._Trial, "seconds_of", seconds_of)
    point = measure_point("NBFNet", Size(2, 16, 40, 3, 200), ComplexityOptions(quick=True))
    assert asked[0] == 4
    assert len(asked) == 2  # once more for its memory
    assert point["step_seconds"] == pytest.approx(0.5 * 200 / 4)
