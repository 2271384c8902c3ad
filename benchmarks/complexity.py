"""What a training step costs as L, d and |T| grow, beside the paper's complexity table: record, page and figures."""

from __future__ import annotations

import argparse
from pathlib import Path

from records import RESULTS
from refactorgnn.reproduce.complexity import ComplexityOptions, measure_complexity
from refactorgnn.reproduce.complexity_page import write_complexity


def main() -> None:
    """Read the command line, measure and write."""
    defaults = ComplexityOptions()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything works")
    parser.add_argument("--device", default=defaults.device, help="where to compute (default cpu)")
    parser.add_argument("--threads", type=int, default=defaults.threads, help="processor threads (default 1)")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of graphs and weights (default 0)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for record, page and figures")
    chosen = parser.parse_args()
    options = ComplexityOptions(chosen.quick, chosen.device, chosen.threads, seed=chosen.seed)
    for path in write_complexity(measure_complexity(options), chosen.out):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
