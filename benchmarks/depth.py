"""Whether a training step of a ReFactor GNN costs more when the model is deeper: time and memory against L."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from records import begin, goal, in_process, measure, parser, write_record
from refactorgnn import load_graph
from refactorgnn.reproduce.complexity import run_epoch
from refactorgnn.training.building import build_model
from refactorgnn.training.config import ReFactorConfig
from refactorgnn.training.regimes import make_regime

DEPTHS = (1, 2, 3, 6, 9, 12)


def epochs_of(depth: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train a model of that depth for some cycles of its layers; the figures of one step."""
    graph = load_graph(options.dataset, data_root=options.data_root, progress=False)
    config = ReFactorConfig(dataset=options.dataset, dim=options.dim, layers=depth, features="signature+random")
    model = build_model(config, graph)
    regime = make_regime(model, config, graph, torch.device("cpu")).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    cycles = max(1, options.steps // depth)
    numbers = iter(range(1, cycles * options.repeats + 1))
    timing = measure(lambda: [run_epoch(regime, optimizer, next(numbers)) for _ in range(cycles)], options.repeats)
    return {
        "layers": depth,
        "num_parameters": model.num_parameters,
        "seconds_per_step": round(timing["seconds"] / (cycles * depth), 4),
        "peak_increase_mb": timing["peak_increase_mb"],
    }


def run(options: argparse.Namespace) -> None:
    """Measure each depth in a process of its own, and write the record."""
    origin = begin(options.threads)
    shared = ["--dataset", options.dataset, "--dim", str(options.dim), "--steps", str(options.steps)]
    shared += ["--repeats", str(options.repeats), "--threads", str(options.threads)]
    shared += ["--data-root", options.data_root] if options.data_root else []
    script = str(Path(__file__))
    rows = [in_process(script, ["--worker", str(depth), *shared], options.threads) for depth in DEPTHS]
    shallow, deep = rows[0], rows[-1]
    time_ratio = round(deep["seconds_per_step"] / shallow["seconds_per_step"], 2)
    memory_ratio = round(deep["peak_increase_mb"] / shallow["peak_increase_mb"], 2)
    body = {
        "task": {"dataset": options.dataset, "dim": options.dim, "threads": options.threads, "steps": options.steps},
        "depths": rows,
        "goals": [
            goal(time_ratio, "<=", 1.2, f"seconds per step, {deep['layers']} layers over 1"),
            goal(memory_ratio, "<=", 1.1, f"memory of training, {deep['layers']} layers over 1"),
        ],
    }
    write_record("depth", body, origin, options.out)


def main() -> None:
    """Read the command line."""
    options = parser(__doc__ or "", "depth")
    options.add_argument("--dataset", default="fb237_v1")
    options.add_argument("--dim", type=int, default=384)
    options.add_argument("--steps", type=int, default=12, help="steps in a run (default 12)")
    options.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.worker is None:
        run(chosen)
    else:
        torch.set_num_threads(chosen.threads)
        print(json.dumps(epochs_of(chosen.worker, chosen)))


if __name__ == "__main__":
    main()
