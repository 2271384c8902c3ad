"""How fast filtered full ranking is: against the bare score products, and against PyKEEN with the same weights.

Each contender runs in a process of its own, so that peak memory is its own, and all of them with the same number of
threads. The weights are random but shared: ComplEx with reciprocal relations set to conjugates asks PyKEEN's questions
exactly, so both must find the same metrics, and the script fails if they do not.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from records import begin, goal, in_process, is_installed, measure, parser, write_record
from refactorgnn import load_graph
from refactorgnn.data import KnowledgeGraph, to_pykeen
from refactorgnn.evaluation import Evaluation, evaluate_ranking
from refactorgnn.models.base import EmbeddingScorer
from refactorgnn.scorers import make_scorer

# Rounding moves a candidate past the truth now and then; a wrong filter moves the mean rank by more than a percent.
_RELATIVE_TOLERANCE = 1e-4
_RIVALS = ("pykeen", "pykeen_inverse")
_PYKEEN_METRICS = {
    "mrr": "inverse_harmonic_mean_rank",
    "mr": "arithmetic_mean_rank",
    "amri": "adjusted_arithmetic_mean_rank_index",
    "hits@10": "hits_at_10",
}


def weights(graph: KnowledgeGraph, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random states ``(num_entities, dim)`` and relations ``(num_relations, dim)``, real parts first."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(graph.num_entities, dim, generator=generator),
        torch.randn(graph.num_relations, dim, generator=generator),
    )


def conjugate(vectors: Tensor) -> Tensor:
    """The complex conjugates of vectors that hold real parts before imaginary ones."""
    real, imaginary = vectors.chunk(2, dim=1)
    return torch.cat([real, -imaginary], dim=1)


class Watched(EmbeddingScorer):
    """A scorer that notes how many questions it is asked at once."""

    def __init__(self, dim: int, states: Tensor, relations: Tensor) -> None:
        super().__init__(make_scorer("complex", dim), states, torch.cat([relations, conjugate(relations)]))
        self.asked: list[int] = []

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """The scores of all entities; shape ``(num_questions, num_entities)``."""
        self.asked.append(len(subjects))
        return super().scores(subjects, relations)


def measure_ours(graph: KnowledgeGraph, options: argparse.Namespace) -> dict[str, Any]:
    """``evaluate_ranking`` without confidence intervals; the first run also builds the index of known answers."""
    scorer = Watched(options.dim, *weights(graph, options.dim, options.seed))
    results: list[Evaluation] = []
    measured = measure(lambda: results.append(evaluate_ranking(scorer, graph, confidence=False)), options.repeats)
    return measured | {
        "chunk_rows": max(scorer.asked),
        "questions_scored": sum(scorer.asked) // options.repeats,
        "metrics": {name: results[0].metrics[name] for name in _PYKEEN_METRICS},
    }


def measure_floor(graph: KnowledgeGraph, options: argparse.Namespace) -> dict[str, Any]:
    """The score products alone, one for each question, in chunks of ``options.rows`` into one reused buffer."""
    states, _ = weights(graph, options.dim, options.seed)
    queries = torch.randn(2 * len(graph.triples("test")), options.dim)
    buffer = torch.empty(options.rows, len(states))

    def products() -> None:
        with torch.inference_mode():
            for chunk in queries.split(options.rows):
                torch.mm(chunk, states.T, out=buffer[: len(chunk)])

    return measure(products, options.repeats)


def measure_pykeen(graph: KnowledgeGraph, options: argparse.Namespace, inverse: bool = False) -> dict[str, Any]:
    """PyKEEN's ``RankBasedEvaluator`` with the same weights.

    Args:
        graph: The graph.
        options: The command line.
        inverse: Ask head questions through inverse relations, as we do: PyKEEN is then faster than with its default,
            whose head scores go through an array of batch × entities × dim numbers.
    """
    from pykeen.evaluation import RankBasedEvaluator

    logging.disable(logging.WARNING)  # its advice on batch sizes
    model = pykeen_model(graph, options, inverse)
    filters = [graph.triples("train"), graph.triples("valid")]
    results: list[Any] = []

    def evaluate() -> None:
        evaluator = RankBasedEvaluator(filtered=True)
        results.append(
            evaluator.evaluate(
                model,
                graph.triples("test"),
                batch_size=options.pykeen_batch_size,
                additional_filter_triples=filters,
                use_tqdm=False,
            )
        )

    measured = measure(evaluate, options.pykeen_repeats)
    found = {name: results[0].get_metric(f"both.realistic.{theirs}") for name, theirs in _PYKEEN_METRICS.items()}
    return measured | {"batch_size": options.pykeen_batch_size or "automatic", "metrics": found}


def pykeen_model(graph: KnowledgeGraph, options: argparse.Namespace, inverse: bool) -> Any:
    """PyKEEN's ComplEx with our weights, which it keeps as pairs of real and imaginary part."""
    from pykeen.models import ComplEx
    from pykeen.triples import TriplesFactory

    plain = to_pykeen(graph)
    factory = TriplesFactory(plain.mapped_triples, plain.entity_to_id, plain.relation_to_id, inverse)
    model = ComplEx(triples_factory=factory, embedding_dim=options.dim // 2, random_seed=0)
    states, relations = weights(graph, options.dim, options.seed)
    if inverse:  # PyKEEN numbers relation r as 2r and its inverse as 2r + 1
        relations = torch.stack([relations, conjugate(relations)], dim=1).flatten(0, 1)
    tables = (model.entity_representations[0], states), (model.relation_representations[0], relations)
    with torch.no_grad():
        for representation, table in tables:
            (parameter,) = representation.parameters()
            parameter.copy_(torch.stack(table.chunk(2, dim=1), dim=2).flatten(1))
    return model


WORKERS: dict[str, Callable[[KnowledgeGraph, argparse.Namespace], dict[str, Any]]] = {
    "floor": measure_floor,
    "ours": measure_ours,
    "pykeen": measure_pykeen,
    "pykeen_inverse": lambda graph, options: measure_pykeen(graph, options, inverse=True),
}


def work(options: argparse.Namespace) -> None:
    """What a process started for one contender does: measure it and print the result."""
    torch.set_num_threads(options.threads)
    graph = load_graph(options.dataset, data_root=options.data_root, progress=False)
    measured = WORKERS[options.worker](graph, options)
    print(json.dumps(measured | {"task": task(graph, options)}))


def compare(options: argparse.Namespace) -> None:
    """Measure all contenders one after the other and write the record."""
    origin = begin(options.threads, ("pykeen", "opt_einsum"))
    found: dict[str, Any] = {"ours": start(options, "ours")}
    found["floor"] = start(options, "floor", found["ours"]["chunk_rows"])
    with_pykeen = options.pykeen_repeats > 0 and is_installed("pykeen")
    for name in _RIVALS:
        found[name] = start(options, name) if with_pykeen else None
        if with_pykeen:
            check_same(found["ours"]["metrics"], found[name]["metrics"])
    if not is_installed("pykeen"):
        print("PyKEEN is not installed, so it was not measured: pip install 'refactorgnn[pykeen]'.", file=sys.stderr)
    tasks = [result.pop("task") for result in found.values() if result]
    body = {"task": tasks[0], **found, **judge(found)}
    write_record("evaluation_speed", body, origin, options.out)


def start(options: argparse.Namespace, worker: str, rows: int = 1) -> dict[str, Any]:
    """Measure one contender in a process of its own."""
    arguments = ["--worker", worker, "--rows", str(rows)]
    for name in ("dataset", "data_root", "threads", "repeats", "dim", "seed", "pykeen_repeats", "pykeen_batch_size"):
        value = getattr(options, name)
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return in_process(__file__, arguments, options.threads)


def check_same(ours: dict[str, float], theirs: dict[str, float]) -> None:
    """Both must have answered the same questions about the same model.

    Raises:
        SystemExit: if the metrics differ by more than rounding.
    """
    for name in ("mrr", "mr"):
        if abs(ours[name] - theirs[name]) > _RELATIVE_TOLERANCE * ours[name]:
            raise SystemExit(f"the two evaluations disagree, so their times do not compare: {ours} and {theirs}.")


def task(graph: KnowledgeGraph, options: argparse.Namespace) -> dict[str, Any]:
    """What was evaluated."""
    return {
        "dataset": graph.name,
        "split": "test",
        "ranking": "full, filtered, both directions, realistic ties",
        "num_questions": 2 * len(graph.triples("test")),
        "num_entities": graph.num_entities,
        "scorer": "complex",
        "dim": options.dim,
        "weights": f"random, seed {options.seed}, the same for all",
        "threads": options.threads,
    }


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """The ratios between the contenders, and the goals."""
    ours = found["ours"]["seconds"]
    ratios = {"ours_over_floor": round(ours / found["floor"]["seconds"], 2)}
    for name in _RIVALS:
        ratios[f"{name}_over_ours"] = round(found[name]["seconds"] / ours, 1) if found[name] else None
    of_pykeen = [ratios[f"{name}_over_ours"] for name in _RIVALS if found[name]]
    goals = [
        goal(ratios["ours_over_floor"], "<=", 2.5, "ours / floor"),
        goal(min(of_pykeen, default=None), ">=", 2, "the faster way of PyKEEN / ours"),
        goal(found["ours"]["peak_mb"], "<=", 1500, "peak MB of our process"),
    ]
    return {"ratios": ratios, "goals": goals}


def main() -> None:
    """Read the command line."""
    options = parser(__doc__ or "", "evaluation_speed")
    options.add_argument("--dataset", default="FB15k-237")
    options.add_argument("--dim", type=int, default=256, help="real numbers in a state (default 256)")
    options.add_argument("--seed", type=int, default=0, help="of the weights")
    options.add_argument("--pykeen-repeats", type=int, default=1, help="runs of PyKEEN, which is slow (0: none)")
    options.add_argument("--pykeen-batch-size", type=int, help="default: PyKEEN's automatic one (32 on CPU)")
    options.add_argument("--worker", choices=list(WORKERS), help=argparse.SUPPRESS)
    options.add_argument("--rows", type=int, default=1, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.worker:
        work(chosen)
    else:
        compare(chosen)


if __name__ == "__main__":
    main()
