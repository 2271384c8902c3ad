"""The work of each row, made ready: ours, its floor, and its rivals."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from refactorgnn.bench.cases import Case, graph_of
from refactorgnn.bench.floors import Floor, Products, layer_and_backward_products, layer_products, score_products
from refactorgnn.bench.rivals import Rival, published, pyg_evaluation, pykeen_evaluation
from refactorgnn.bench.timing import Contestant, nothing
from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.devices import usable_device
from refactorgnn.evaluation import rank_triples
from refactorgnn.evaluation.ranking import ranking_budget
from refactorgnn.layers import ReFactorConv
from refactorgnn.models.base import EmbeddingScorer
from refactorgnn.ops.chunked import DEFAULT_MEMORY_BUDGET, GPU_MEMORY_BUDGET
from refactorgnn.reproduce.complexity import run_epoch
from refactorgnn.runs import Run
from refactorgnn.scorers import make_scorer
from refactorgnn.training.building import build_model
from refactorgnn.training.config import ReFactorConfig
from refactorgnn.training.loop import fit_together
from refactorgnn.training.regimes import make_regime
from refactorgnn.training.regimes.layerwise import LayerStep

NUM_SAMPLES = 1024
NUM_CYCLES = 60
# Trainings side by side.
NUM_SEEDS = 16
_SEED = 0


@dataclass(frozen=True)
class Contest:
    """What is to be measured.

    Args:
        subject: Our way to do the work.
        floor: The products that no way can do without.
        sizes: What the cost may depend on.
        rivals: Other ways.
        close: What is to be done when all is measured.
    """

    subject: Contestant
    floor: Floor
    sizes: Mapping[str, int]
    rivals: tuple[Rival, ...] = ()
    close: Callable[[], None] = nothing


class _Bench:
    """What the rows have in common: a graph, a device, a precision, weights drawn from a seed."""

    def __init__(self, case: Case, data_root: str | Path | None) -> None:
        self.case = case
        self.device = usable_device(case.device)
        self.graph: KnowledgeGraph = graph_of(case.dataset, data_root)
        self.queries: QueryIndex = self.graph.queries("train").to(self.device)
        # TF32 is a switch of the process, which is one made to measure.
        torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")

    def autocast(self) -> AbstractContextManager[Any]:
        """Where bfloat16 is asked for, the mixed precision that a user would have."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.case.precision == "bf16" else nullcontext()

    def random(self, num_rows: int) -> Tensor:
        """Weights of a width that keeps scores near 1."""
        generator = torch.Generator().manual_seed(_SEED)
        values: Tensor = torch.randn(num_rows, self.case.dim, generator=generator).to(self.device)
        return values.mul_(self.case.dim**-0.25)

    def memory_budget(self, on_cpu: int = DEFAULT_MEMORY_BUDGET) -> int:
        """Bytes of temporaries: as asked for, or what the library would take by itself."""
        if self.case.memory_budget_mb is not None:
            return self.case.memory_budget_mb * 2**20
        return GPU_MEMORY_BUDGET if self.device.type == "cuda" else on_cpu

    def floor(self, *products: Products, memory_budget: int, times: int = 1) -> Floor:
        """The floor in this row's precision."""
        return Floor(products, self.device, self.case.precision, memory_budget, times)

    def sizes(self, **more: int) -> dict[str, int]:
        """The sizes of the training facts, reciprocals included, as a layer sees them."""
        return {
            "num_triples": self.queries.num_triples,
            "num_queries": self.queries.num_queries,
            "num_entities": self.graph.num_entities,
            "num_relations": self.graph.num_relations,
            "dim": self.case.dim,
            **more,
        }


def _layer(bench: _Bench, *, backward: bool, num_samples: int | None = None) -> Contest:
    case, queries, budget = bench.case, bench.queries, bench.memory_budget()
    conv = ReFactorConv(case.dim, queries.num_relations, memory_budget=budget, num_samples=num_samples).to(bench.device)
    states = bench.random(bench.graph.num_entities).requires_grad_(backward)
    upstream = bench.random(bench.graph.num_entities) if backward else None

    def run(forward: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(backward), bench.autocast():
            output = forward()
        learned = (states, conv.relations)
        return (output, *torch.autograd.grad(output, learned, upstream)) if backward else (output,)

    subject = Contestant(lambda: run(lambda: conv(states, queries)))
    products = layer_and_backward_products if backward else layer_products
    num_candidates = num_samples or bench.graph.num_entities
    floor = bench.floor(products(queries.num_queries, num_candidates, case.dim), memory_budget=budget)
    if num_samples:
        return Contest(subject, floor, bench.sizes(num_samples=num_samples))
    return Contest(subject, floor, bench.sizes(), (published(states, conv.relations, queries, conv.alpha, run),))


def _sampled_layer(bench: _Bench) -> Contest:
    return _layer(bench, backward=False, num_samples=min(NUM_SAMPLES, bench.graph.num_entities))


def _training_config(bench: _Bench) -> ReFactorConfig:
    case = bench.case
    return ReFactorConfig(
        dataset=case.dataset,
        dim=case.dim,
        layers=case.layers,
        features="random",
        epochs=NUM_CYCLES,
        validate_every=NUM_CYCLES,
        accelerator="cuda" if bench.device.type == "cuda" else "cpu",
        devices="1" if bench.device.index is None else f"{bench.device.index},",
        precision="bf16-mixed" if case.precision == "bf16" else "32-true",
        tf32=case.precision == "tf32" and bench.device.type == "cuda",
        threads=case.threads,
        memory_budget_mb=bench.memory_budget() // 2**20,
    )


def _cycle(bench: _Bench) -> tuple[Callable[[], None], list[LayerStep]]:
    """A cycle of layer-wise training through its regime, and the steps that a cycle has."""
    config = _training_config(bench)
    model = build_model(config, bench.graph).to(bench.device)
    regime = make_regime(model, config, bench.graph, bench.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    numbers = count(1)

    def run() -> None:
        torch.manual_seed(_SEED)  # the same facts are held out in each cycle
        with bench.autocast():
            run_epoch(regime, optimizer, next(numbers))

    torch.manual_seed(_SEED)
    return run, list(regime.batches(1))


def _step_products(bench: _Bench, steps: list[LayerStep]) -> list[Products]:
    """Of each step a layer, backward too but not by the states, which are cached; and its loss."""
    num_entities, dim = bench.graph.num_entities, bench.case.dim
    layers = [
        layer_and_backward_products(step.messages.num_queries, num_entities, dim, states_learn=False) for step in steps
    ]
    return layers + [layer_products(step.targets.num_queries, num_entities, dim) for step in steps]


def _step(bench: _Bench) -> Contest:
    run, steps = _cycle(bench)
    floor = bench.floor(*_step_products(bench, steps), memory_budget=bench.memory_budget())
    return Contest(Contestant(run), floor, bench.sizes(layers=bench.case.layers, steps=len(steps)))


def _training(bench: _Bench, num_seeds: int = 1) -> Contest:
    """Whole trainings of ``num_seeds`` seeds, side by side."""
    config = _training_config(bench)
    _, steps = _cycle(bench)
    folder = tempfile.TemporaryDirectory(prefix="refactorgnn-bench-")
    runs: list[Run] = []

    def get_ready() -> None:
        runs[:] = [
            Run.create(Path(folder.name) / str(uuid4()), config.model_copy(update={"seed": seed}), bench.graph)
            for seed in range(num_seeds)
        ]

    def run() -> None:
        fit_together(runs, progress=False)

    num_cycles = num_seeds * NUM_CYCLES
    floor = bench.floor(*_step_products(bench, steps), memory_budget=bench.memory_budget(), times=num_cycles)
    sizes = bench.sizes(layers=bench.case.layers, steps=num_cycles * len(steps))
    return Contest(Contestant(run, get_ready), floor, sizes, close=folder.cleanup)


def _evaluation(bench: _Bench) -> Contest:
    case, graph = bench.case, bench.graph
    states, relations = bench.random(graph.num_entities), bench.random(graph.num_relations).repeat(2, 1)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    scorer = EmbeddingScorer(make_scorer("distmult", case.dim), states.to(dtype), relations.to(dtype))
    triples, known = graph.triples("test"), graph.queries()
    questions = graph.with_reciprocals(triples)
    num_distinct = len(questions[:, :2].unique(dim=0))
    budget = bench.memory_budget(ranking_budget(graph.num_entities))
    return Contest(
        Contestant(lambda: rank_triples(scorer, graph, triples, known=known, memory_budget=budget)),
        bench.floor(score_products(num_distinct, graph.num_entities, case.dim), memory_budget=budget),
        bench.sizes() | {"num_triples": len(questions), "num_queries": num_distinct},
        tuple(make(graph, states, relations, triples) for make in (pyg_evaluation, pykeen_evaluation)),
    )


_BUILDERS: Mapping[str, Callable[[_Bench], Contest]] = {
    "layer": lambda bench: _layer(bench, backward=False),
    "layer-backward": lambda bench: _layer(bench, backward=True),
    "step": _step,
    "training": _training,
    "training-together": lambda bench: _training(bench, num_seeds=NUM_SEEDS),
    "evaluation": _evaluation,
    "sampled-layer": _sampled_layer,
}


def make_contest(case: Case, data_root: str | Path | None = None) -> Contest:
    """Everything that a case needs, ready to be run."""
    return _BUILDERS[case.row](_Bench(case, data_root))
