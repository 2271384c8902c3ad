"""``make demo``: train on the bundled graph of countries, show the metrics, and ask some questions."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from refactorgnn import api
from refactorgnn.cli.output import print_table, say
from refactorgnn.predict.predictor import Predictor

QUESTIONS = (
    ("Austria", "borders", None),
    ("Uruguay", "speaks", None),
    ("Nagoya", "city_in", None),
    ("Senegal", "uses_currency", None),
    (None, "in_continent", "Oceania"),
)


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".demo"), help="where to put the run")
    out = parser.parse_args().out
    if (out / "config.yaml").is_file():  # an earlier demonstration
        shutil.rmtree(out)
    say("Training ComplEx on the bundled graph of countries …")
    run = api.train("countries", out=out, scorer="complex", dim=128)
    result = api.evaluate(run)
    rows = [["test, filtered, all entities ranked", *result.metrics.values()]]
    print_table(f"{run.graph.name}: {run.graph!r}", ["", *result.metrics], rows)
    predictor = Predictor.load(run)
    for head, relation, tail in QUESTIONS:
        answers = api.predict(predictor, head=head, relation=relation, tail=tail, k=5)
        question = f"({head or '?'}, {relation}, {tail or '?'})   new answers, not in the graph"
        print_table(question, ["answer", "score"], [[answer.label, answer.score] for answer in answers])
    say(f"The run is in {out}. Ask it more: refactorgnn predict {out} --head France --relation borders --include-known")


if __name__ == "__main__":
    main()
