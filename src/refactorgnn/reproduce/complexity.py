"""What a training step costs: time, memory and parameters against L, d and |T|, beside the paper's complexity table.

Each point is measured in a process of its own, on a synthetic graph: one size changes along a sweep, and the slope of
the logarithms is the exponent to compare with the paper's formula.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.devices import usable_device
from refactorgnn.errors import UserError
from refactorgnn.measuring import isolated, load_average, memory_added_mb, timed
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.progress import counting
from refactorgnn.provenance import provenance
from refactorgnn.reproduce.synthetic import synthetic_graph
from refactorgnn.storage import write_text
from refactorgnn.training.building import build_model
from refactorgnn.training.config import GATConfig, MessagePassingConfig, ReFactorConfig, RGCNConfig, TrainConfig
from refactorgnn.training.objective import total_loss
from refactorgnn.training.regimes import Regime, make_regime
from refactorgnn.training.rivals.nbfnet import NBFNetConfig

Quantity = Literal["step_seconds", "layer_seconds", "memory_mb", "num_parameters"]
# The settings of models that compute states. All facts are messages and targets, as in the paper; the temporaries of
# the score products get little, lest a constant hide what grows.
SHARED: Mapping[str, Any] = {"dataset": "synthetic", "mask": 0.0, "memory_budget_mb": 8, "features": "random"}
# And of one that reads the graph anew for each question: it is timed on so many facts, and a step asks about all.
ASKING: Mapping[str, Any] = {"dataset": "synthetic", "memory_budget_mb": 8, "batch_size": 4}
MODELS: Mapping[str, Callable[..., TrainConfig]] = {
    "ReFactorGNN, layer-wise": lambda **sizes: ReFactorConfig(**SHARED, **sizes),
    "ReFactorGNN, unrolled": lambda **sizes: ReFactorConfig(**SHARED, **sizes, regime="unrolled", steps_per_epoch=1),
    "GAT": lambda **sizes: GATConfig(**SHARED, **sizes, steps_per_epoch=1),
    "R-GCN": lambda **sizes: RGCNConfig(**SHARED, **sizes, steps_per_epoch=1, bases=4),
    "NBFNet": lambda **sizes: NBFNetConfig(**ASKING, **sizes),
}
_PRELOAD = ("torch_geometric.nn", "refactorgnn.reproduce.complexity")
_NOTE = (
    "Seconds of the fastest of the repeated steps: of processor time on a CPU, which other jobs disturb less than the "
    "clock, though they still do (see load_average, before and after), and by the clock on an accelerator."
)
_LEARNING_RATE = 1e-3
_MOST_REPEATS = 5


@dataclass(frozen=True)
class Size:
    """The sizes that a cost may depend on."""

    num_layers: int
    dim: int
    num_entities: int
    num_relations: int
    num_triples: int


@dataclass(frozen=True)
class Sweep:
    """Sizes of which one changes.

    Args:
        name: A short name.
        axis: What is drawn along the axis.
        symbols: The symbols of the paper's formulas that grow in proportion.
        field: The field of :class:`Size` that is drawn along the axis.
        sizes: The sizes, from small to large.
    """

    name: str
    axis: str
    symbols: tuple[str, ...]
    field: str
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class ComplexityOptions:
    """How to measure.

    Args:
        quick: Tiny sizes, seconds in all: to see that everything works. Exponents then mean nothing.
        device: Where to compute.
        threads: Processor threads.
        seconds: How long to repeat the steps of a point, if not the most repeats are reached before.
        seed: The seed of graphs and weights.
    """

    quick: bool = False
    device: str = "cpu"
    threads: int = 1
    seconds: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.threads < 1 or not self.seconds > 0:
            raise UserError("threads and seconds of a measurement must be above 0: give larger ones.")

    @property
    def base(self) -> Size:
        """The point that all sweeps go through."""
        return Size(2, 16, 60, 3, 240) if self.quick else Size(2, 128, 1000, 10, 8000)

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Sizes to measure."""
        base = self.base
        layers, dims = ((1, 2), (8, 16)) if self.quick else ((1, 2, 4, 8, 12), (64, 128, 256, 512))
        factors = (0.5, 1) if self.quick else (0.25, 0.5, 1, 2)
        triples = [int(base.num_triples * factor) for factor in factors]
        entities = [int(base.num_entities * factor) for factor in factors]
        return (
            Sweep("layers", "layers L", ("L",), "num_layers", tuple(replace(base, num_layers=n) for n in layers)),
            Sweep("width", "width d", ("d",), "dim", tuple(replace(base, dim=n) for n in dims)),
            Sweep(
                "triples",
                f"triples |T|, |V| = {base.num_entities:,}",
                ("T",),
                "num_triples",
                tuple(replace(base, num_triples=n) for n in triples),
            ),
            Sweep(
                "graph",
                f"triples |T|, |V| = |T| / {base.num_triples / base.num_entities:g}",
                ("T", "V"),
                "num_triples",
                tuple(replace(base, num_triples=t, num_entities=v) for t, v in zip(triples, entities, strict=True)),
            ),
        )


def measure_complexity(
    options: ComplexityOptions, *, kept: Path | None = None, progress: bool = True
) -> dict[str, Any]:
    """Measure all points, on a CPU each in a process of its own; the record of them, ready for JSON.

    Args:
        options: How to measure.
        kept: A file in which points are kept as they are measured, so that a measurement that was interrupted goes on.
            Those of other options or another commit count for nothing.
        progress: Show a bar.
    """
    torch.set_num_threads(options.threads)
    usable_device(options.device)
    origin, load = provenance(options.device), {"before": load_average()}
    mark = {"options": asdict(options), "commit": origin["commit"]}
    sizes = dict.fromkeys(size for sweep in options.sweeps for size in sweep.sizes)
    done = {(point["model"], _key(point)): point for point in _points_in(kept, mark)}
    points: list[dict[str, Any]] = []
    with counting("measuring", len(MODELS) * len(sizes), enabled=progress) as bar:
        for model in MODELS:
            for size in sizes:
                points.append(done.get((model, _key(asdict(size)))) or _measured(model, size, options))
                if kept is not None:
                    write_text(kept, json.dumps({**mark, "points": points}))
                bar.advance(note=model)
    load["after"] = load_average()
    return {
        "benchmark": "complexity",
        "options": asdict(options),
        "settings": {**SHARED, "optimizer": "sgd", "learning_rate": _LEARNING_RATE},
        "settings_of_asking": dict(ASKING),
        "base": asdict(options.base),
        "sweeps": [asdict(sweep) for sweep in options.sweeps],
        "points": points,
        "seconds": round(math.fsum(point["seconds"] for point in points), 1),
        "load_average": load,
        "note": _NOTE,
        "provenance": origin,
    }


def _measured(model: str, size: Size, options: ComplexityOptions) -> dict[str, Any]:
    started = time.perf_counter()
    point: dict[str, Any] = isolated(measure_point, model, size, options, device=options.device, preload=_PRELOAD)
    return {**point, "seconds": round(time.perf_counter() - started, 3)}


def _points_in(kept: Path | None, mark: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The points that an interrupted measurement of the same kind has left."""
    try:
        content = json.loads(kept.read_text(encoding="utf-8")) if kept is not None else {}
    except (OSError, ValueError):  # there is none, or it is damaged: points can always be measured again
        return []
    points: list[dict[str, Any]] = content["points"] if all(content.get(name) == mark[name] for name in mark) else []
    return points


def measure_point(model: str, size: Size, options: ComplexityOptions) -> dict[str, Any]:
    """The cost of a step of learning, in this process.

    Libraries load and set up much when they are first used, so a tiny model of the same kind learns first. Memory comes
    last, since measuring it slows what follows.
    """
    torch.set_num_threads(options.threads)
    _Trial(model, Size(2, 16, 60, 3, 240), options).learn()
    trial = _Trial(model, size, options)
    return {
        "model": model,
        **asdict(size),
        "num_queries": trial.graph.queries("train").num_queries,
        "num_parameters": trial.model.num_parameters,
        "step_seconds": trial.seconds_of(trial.learn, options.seconds) / trial.steps,
        "loss_seconds": trial.seconds_of(trial.loss_alone, options.seconds / 4) if trial.has_states else 0.0,
        "memory_mb": round(trial.memory_added_mb(), 3),
    }


class _Trial:
    """A model on a graph of that size, ready to learn."""

    def __init__(self, model: str, size: Size, options: ComplexityOptions) -> None:
        self.device = usable_device(options.device)
        torch.manual_seed(options.seed)
        self.config = MODELS[model](layers=size.num_layers, dim=size.dim, seed=options.seed)
        self.graph: KnowledgeGraph = synthetic_graph(
            size.num_entities, size.num_relations, size.num_triples, options.seed
        )
        self.model = build_model(self.config, self.graph).to(self.device)
        self.has_states = isinstance(self.model, StateEncoder)
        self.regime = make_regime(self.model, self.config, self.graph, self.device).train()
        # Plain SGD: an optimiser that carries sums would add a multiple of the parameters to the memory.
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE)
        self.steps = self._steps_learned(size)
        self._numbers = count(1)
        self._queries = self.graph.queries("train").to(self.device)
        self._states = torch.randn(size.num_entities, size.dim, device=self.device)

    def _steps_learned(self, size: Size) -> float:
        """The steps that :meth:`learn` takes, one being about all facts once."""
        if isinstance(self.config, NBFNetConfig):
            return self.config.batch_size / size.num_triples
        is_layerwise = isinstance(self.config, ReFactorConfig) and self.config.regime == "layerwise"
        return size.num_layers if is_layerwise else 1

    def learn(self) -> None:
        """One cycle of the layers if training is layer-wise; a batch if it asks fact by fact; else one step."""
        run_epoch(self.regime, self.optimizer, next(self._numbers), most=None if self.has_states else 1)
        self._wait()

    def loss_alone(self) -> None:
        """The loss and its gradient for given states: what a step costs whatever the layers are."""
        assert isinstance(self.model, StateEncoder)
        assert isinstance(self.config, MessagePassingConfig)
        states, queries = self._states.detach().requires_grad_(), self._queries
        known = queries.objects_of(queries.subjects, queries.relations)
        relations = self.model.relation_embeddings
        total = total_loss(self.model.scorer, states, relations, queries, known, config=self.config)
        (total / queries.num_triples).backward()
        self._wait()

    def seconds_of(self, run: Callable[[], None], seconds: float) -> float:
        """The least time of a run, of as many as fit into ``seconds``: at least one, at most a few."""
        (first,), (first_cpu,) = timed(run, 1)
        wall, cpu = timed(run, min(_MOST_REPEATS, int(seconds / first)))
        return min([first_cpu, *cpu] if self.device.type == "cpu" else [first, *wall])

    def memory_added_mb(self) -> float:
        """The peak of the memory while learning, above what the graph, the model and its inputs take."""
        self.optimizer.zero_grad()
        if self.device.type != "cuda":
            return memory_added_mb(self.learn)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        self.learn()
        return (torch.cuda.max_memory_allocated(self.device) - before) / 1e6

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def run_epoch(regime: Regime[Any], optimizer: torch.optim.Optimizer, number: int, *, most: int | None = None) -> None:
    """All batches of an epoch, or the first of them, a step of learning after each."""
    regime.begin(number)
    for batch in islice(regime.batches(number), most):
        optimizer.zero_grad()
        regime(batch).backward()
        optimizer.step()


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """The slope of the least-squares line through the logarithms; None if a value has none or sizes do not differ."""
    if len(sizes) < 2 or min(values) <= 0:
        return None
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    return math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread else None


def models_of(record: Mapping[str, Any]) -> list[str]:
    """The models that were measured, in that order."""
    return list(dict.fromkeys(point["model"] for point in record["points"]))


def points_of(record: Mapping[str, Any], model: str, sweep: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The points of a model along a sweep, from small to large."""
    of_size = {_key(point): point for point in record["points"] if point["model"] == model}
    return [of_size[_key(size)] for size in sweep["sizes"]]


def value_of(point: Mapping[str, Any], quantity: Quantity) -> float:
    """A figure of a point; the layers have what the loss does not take of a step."""
    if quantity == "layer_seconds":
        return float(point["step_seconds"] - point["loss_seconds"])
    return float(point[quantity])


def exponent(record: Mapping[str, Any], model: str, sweep: Mapping[str, Any], quantity: Quantity) -> float | None:
    """The measured exponent of a quantity along a sweep."""
    points = points_of(record, model, sweep)
    return fitted_exponent([point[sweep["field"]] for point in points], [value_of(point, quantity) for point in points])


def published_complexity() -> dict[str, Any]:
    """The paper's table: for each model the terms of each formula, as powers of the symbols."""
    text = resources.files("refactorgnn.reproduce").joinpath("published_complexity.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def published_range(terms: Iterable[Mapping[str, int]], symbols: Sequence[str]) -> tuple[int, int]:
    """The least and the largest exponent a formula allows where ``symbols`` grow in proportion."""
    exponents = [sum(term.get(symbol, 0) for symbol in symbols) for term in terms]
    return min(exponents), max(exponents)


def _key(sizes: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(sizes[name] for name in Size.__dataclass_fields__)
