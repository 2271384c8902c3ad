"""What a vector index finds and how long a question takes: 1,000,000 entities of width 256, one core.

A question is that of the predictor: ``(subject, relation, ?)`` of a DistMult model, the known answers left out, ten
answers with exact scores. States are synthetic, of three kinds, each measured in a process of its own:

- ``clusters``: a mixture of 1,000 Gaussians, four fifths of the variance between them: entities come in kinds.
- ``norms``: the same, each vector times a log-normal number (σ = 0.5): long and short vectors.
- ``gaussian``: independent coordinates. There is nothing in it that an index could use: the worst case.

``--rivals`` instead measures usearch's HNSW graph (8-bit numbers, the shortlist scored exactly) beside the index, on
fewer entities, for it takes long to build.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import faiss
import torch
from torch import Tensor

from records import RESULTS, begin, goal, in_process, parser, write_record
from refactorgnn.data.queries import QueryIndex
from refactorgnn.measuring import peak_mb, resident_mb
from refactorgnn.models.base import EmbeddingScorer
from refactorgnn.predict.index import NUM_QUESTIONS, VectorIndex
from refactorgnn.predict.searching import IndexedScorer
from refactorgnn.scorers import make_scorer

KINDS = ("clusters", "norms", "gaussian")
_NUM_RELATIONS = 20
_NUM_CLUSTERS = 1000
_NUM_FACTS = 100_000
_TOP = 10


def states(kind: str, count: int, dim: int, generator: torch.Generator) -> Tensor:
    """Synthetic entity states of unit variance, shape ``(count, dim)``."""
    found = torch.randn(count, dim, generator=generator)
    if kind == "gaussian":
        return found
    centres = torch.randn(_NUM_CLUSTERS, dim, generator=generator)
    found.mul_(0.2**0.5)
    for part in torch.arange(count).split(2**16):
        found[part] += 0.8**0.5 * centres[torch.randint(_NUM_CLUSTERS, (len(part),), generator=generator)]
    if kind == "norms":
        found *= torch.exp(0.5 * torch.randn(count, 1, generator=generator))
    return found


class Task:
    """A model, facts that are known, and questions: some to choose the effort of an index by, others to measure."""

    def __init__(self, kind: str, num_entities: int, dim: int, num_questions: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        # Scores of a few units, as those of a trained model.
        relations = torch.randn(2 * _NUM_RELATIONS, dim, generator=generator) * 3 / dim**0.5
        self.bound = EmbeddingScorer(
            make_scorer("distmult", dim), states(kind, num_entities, dim, generator), relations
        )
        highs = (num_entities, 2 * _NUM_RELATIONS, num_entities)
        columns = [torch.randint(high, (_NUM_FACTS,), generator=generator) for high in highs]
        self.known = QueryIndex.from_triples(torch.stack(columns, dim=1), num_entities, 2 * _NUM_RELATIONS)
        order = torch.randperm(self.known.num_queries, generator=generator)
        self.chosen_by, self.asked = order[:NUM_QUESTIONS], order[NUM_QUESTIONS : NUM_QUESTIONS + num_questions]

    def queries(self, rows: Tensor) -> Tensor:
        """The query vectors of some questions."""
        return self.bound.queries(self.known.subjects[rows], self.known.relations[rows])

    def truth(self) -> list[set[int]]:
        """The ten best answers to each question that are not known, by scoring all."""
        found = []
        for rows in self.asked.split(16):
            scores = self.bound.scores(self.known.subjects[rows], self.known.relations[rows])
            known = self.known.answers.take_rows(rows)
            scores[known.rows, known.columns] = -torch.inf
            found += [set(row) for row in scores.topk(_TOP).indices.tolist()]
        return found


def time_questions(ask: Callable[[int], Tensor], truth: list[set[int]]) -> dict[str, Any]:
    """Ask one question after the other: recall, and milliseconds by the clock and by the processor."""
    wall, cpu, hits = [], [], 0
    for number, best in enumerate(truth):
        start, start_cpu = time.perf_counter(), time.process_time()
        found = ask(number)
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - start_cpu))
        hits += len(best & set(found.tolist()))
    percentiles = statistics.quantiles(wall, n=100)
    return {
        "recall@10": round(hits / (_TOP * len(truth)), 4),
        "p50_ms": round(statistics.median(wall), 2),
        "p99_ms": round(percentiles[98], 2),
        "cpu_p50_ms": round(statistics.median(cpu), 2),
    }


def measure_ours(task: Task, threads: int) -> dict[str, Any]:
    """Build the index and ask, without and with the log-odds that probabilities are made of."""
    assert task.bound.candidates is not None
    faiss.omp_set_num_threads(threads)
    before, start, start_cpu = resident_mb(), time.perf_counter(), time.process_time()
    index = VectorIndex.build(task.bound.candidates, task.queries(task.chosen_by))
    build = {
        "build_seconds": round(time.perf_counter() - start, 1),
        "build_cpu_seconds": round(time.process_time() - start_cpu, 1),
        "codes_mb": round(sum(faiss.serialize_index(shell.scan).nbytes for shell in index.shells) / 2**20),
        "resident_increase_mb": round(resident_mb() - before),
        "peak_mb": round(peak_mb()),
        "num_shells": len(index.shells),
        "share_of_lists": index.effort.share,
        "shortlist": index.effort.shortlist,
        "recall_it_states": round(index.effort.recall, 4),
    }
    scorer, truth = IndexedScorer(task.bound, index), task.truth()
    subjects, relations = (column[task.asked].tolist() for column in (task.known.subjects, task.known.relations))

    def ask(number: int, with_odds: bool) -> Tensor:
        pair = subjects[number], relations[number]
        found = scorer.best(*pair, task.known, _TOP, include_known=False, with_odds=with_odds)
        assert found is not None
        return found.entities

    asked = time_questions(lambda number: ask(number, False), truth)
    with_odds = time_questions(lambda number: ask(number, True), truth)
    return build | asked | {"with_probabilities": with_odds, "exact": time_exact(task)}


def time_exact(task: Task, count: int = 30) -> dict[str, float]:
    """What scoring all entities takes."""
    wall = []
    for row in task.asked[:count].split(1):
        start = time.perf_counter()
        task.bound.scores(task.known.subjects[row], task.known.relations[row]).topk(_TOP)
        wall.append(1e3 * (time.perf_counter() - start))
    return {"p50_ms": round(statistics.median(wall), 2)}


def measure_usearch(task: Task, threads: int) -> dict[str, Any]:
    """An HNSW graph of usearch, by inner product over 8-bit numbers, and exact scores of its shortlist."""
    from usearch.index import Index

    assert task.bound.candidates is not None
    candidates, truth = task.bound.candidates, task.truth()
    queries = task.queries(task.asked)
    start = time.perf_counter()
    index = Index(ndim=candidates.shape[1], metric="ip", dtype="i8", connectivity=16, expansion_add=128)
    # Its 8-bit numbers are of vectors of length one at most; a common factor changes no order.
    index.add(
        torch.arange(len(candidates)).numpy(),
        (candidates / candidates.norm(dim=1).max()).numpy(),
        threads=threads,
    )
    results: dict[str, Any] = {"build_seconds": round(time.perf_counter() - start, 1)}
    for size in (128, 512, 2048):
        index.expansion_search = size
        factor = 1 / queries.norm(dim=1).max()

        def ask(number: int, size: int = size, factor: Tensor = factor) -> Tensor:
            keys = torch.from_numpy(index.search((queries[number] * factor).numpy(), size).keys.astype("int64"))
            known = task.known.answers.take_rows(task.asked[number : number + 1]).columns
            scores = (candidates[keys] @ queries[number]).masked_fill(torch.isin(keys, known), -torch.inf)
            return keys[scores.topk(_TOP).indices]

        results[f"expansion_{size}"] = time_questions(ask, truth)
    return results


WORKERS = {"ours": measure_ours, "usearch": measure_usearch}


def work(options: argparse.Namespace) -> None:
    """What a process started for one measurement does."""
    torch.set_num_threads(options.threads)
    task = Task(options.kind, options.entities, options.dim, options.questions, options.seed)
    with torch.no_grad():
        print(json.dumps(WORKERS[options.worker](task, options.threads)))


def start(options: argparse.Namespace, worker: str, kind: str) -> dict[str, Any]:
    """Measure in a process of its own."""
    arguments = ["--worker", worker, "--kind", kind]
    for name in ("entities", "dim", "questions", "seed", "threads"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return in_process(__file__, arguments, options.threads)


def measure_all(options: argparse.Namespace) -> None:
    """Measure all kinds of states and write the record."""
    origin = begin(options.threads, ("faiss-cpu",))
    found: dict[str, Any] = {kind: start(options, "ours", kind) for kind in KINDS}
    goals = []
    for kind in KINDS:
        goals.append(goal(found[kind]["recall@10"], ">=", 0.95, f"recall@10, {kind}"))
        goals.append(goal(found[kind]["p50_ms"], "<=", 5, f"p50 in ms, {kind}"))
    write_record("ann", {"task": about(options), **found, "goals": goals}, origin, options.out or RESULTS / "ann.json")


def compare(options: argparse.Namespace) -> None:
    """Measure the index and usearch on the same states and write the record."""
    origin = begin(options.threads, ("faiss-cpu", "usearch"))
    found = {kind: {worker: start(options, worker, kind) for worker in WORKERS} for kind in ("clusters", "gaussian")}
    out = options.out or RESULTS / "ann_rivals.json"
    write_record("ann_rivals", {"task": about(options), **found}, origin, out)


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured."""
    return {
        "num_entities": options.entities,
        "dim": options.dim,
        "scorer": "distmult",
        "num_questions": options.questions,
        "threads": options.threads,
        "states": "synthetic, see benchmarks/ann.py",
    }


def main() -> None:
    """Read the command line."""
    options = parser(__doc__ or "", "ann")
    options.set_defaults(out=None)  # of two records, the one that is measured
    options.add_argument("--entities", type=int, help="default 1,000,000; with --rivals 20,000")
    options.add_argument("--rivals", action="store_true", help="compare with usearch instead")
    options.add_argument("--dim", type=int, default=256)
    options.add_argument("--questions", type=int, default=300)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--worker", choices=list(WORKERS), help=argparse.SUPPRESS)
    options.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    chosen.entities = chosen.entities or (20_000 if chosen.rivals else 1_000_000)
    if chosen.worker:
        work(chosen)
    elif chosen.rivals:
        compare(chosen)
    else:
        measure_all(chosen)


if __name__ == "__main__":
    main()
