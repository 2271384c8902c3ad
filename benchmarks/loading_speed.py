"""How long it takes from files to the grouped-query index: all splits, in a fresh process first, then repeatedly."""

from __future__ import annotations

import argparse
import time

from records import begin, goal, measure, parser, write_record
from refactorgnn import load_graph
from refactorgnn.data import KnowledgeGraph


def load(options: argparse.Namespace) -> KnowledgeGraph:
    """Read all three splits and group them twice: the training facts, and all facts (the filter)."""
    graph = load_graph(options.dataset, data_root=options.data_root, progress=False)
    graph.queries("train")
    graph.queries()
    return graph


def run(options: argparse.Namespace) -> None:
    """Measure the first call and the later ones, and write the record."""
    origin = begin(options.threads, ("pyarrow",))
    started = time.perf_counter()
    graph = load(options)
    cold = round(time.perf_counter() - started, 3)
    warm = measure(lambda: load(options), options.repeats)
    body = {
        "task": {
            "dataset": graph.name,
            "steps": "load_graph, queries('train'), queries()",
            "num_triples": {split: len(triples) for split, triples in graph.splits.items()},
            "num_entities": graph.num_entities,
            "num_relations": graph.num_relations,
            "threads": options.threads,
        },
        "cold": {
            "seconds": cold,
            "what": "the first call in a fresh process, imports not counted; the files may be in the system's cache",
        },
        "warm": warm,
        "goals": [goal(cold, "<=", 2, "seconds, first call"), goal(warm["seconds"], "<=", 2, "seconds, later calls")],
    }
    write_record("loading_speed", body, origin, options.out)


def main() -> None:
    """Read the command line."""
    options = parser(__doc__ or "", "loading_speed")
    options.add_argument("--dataset", default="FB15k-237")
    run(options.parse_args())


if __name__ == "__main__":
    main()
