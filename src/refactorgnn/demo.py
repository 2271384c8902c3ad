"""``make demo``: train on the bundled graphs, show the metrics, ask questions, and add a country never seen."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from refactorgnn import api
from refactorgnn.cli.output import print_table, say
from refactorgnn.predict.predictor import Answer, Predictor

# Each has at least one answer that was held out of training.
QUESTIONS = (
    ("Tokyo", "city_in", None),
    ("Poland", "borders", None),
    ("Estonia", "uses_currency", None),
    ("Mexico", "speaks", None),
    (None, "in_region", "Eastern Europe"),
)
NUM_ANSWERS = 5
# A country that is in no graph, and what is asked about it.
ATLANTIS = (
    ("Atlantis", "borders", "Portugal"),
    ("Atlantis", "in_continent", "Europe"),
    ("Atlantis", "speaks", "Portuguese"),
)
ASKED_OF_ATLANTIS = ("in_region", "keeps_time", "has_official_language")
# Random features alone, so that all it knows of an entity comes by messages.
UNSEEN: dict[str, Any] = {
    "model": "refactor",
    "features": "random",
    "draws": 4,
    "layers": 3,
    "dim": 64,
    "alpha": 0.5,
    "init_scale": 0.001,
    "learning_rate": 0.03,
    "mask": 0.3,
    "average": 0.8,
    "epochs": 30,
    "validate_every": 10,
    "threads": 1,
}


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".demo"), help="where to put the runs")
    out = parser.parse_args().out
    for earlier in (out / "countries", out / "unseen"):
        if (earlier / "config.yaml").is_file():
            shutil.rmtree(earlier)
    train_lookup(out / "countries")
    train_unseen(out / "unseen", out / "atlantis.tsv")


def train_lookup(out: Path) -> None:
    """Train a factorisation model of the whole graph, and ask it what one can judge.

    Args:
        out: Where the run goes.
    """
    say("Training ComplEx on the bundled graph of countries: about half a minute.")
    # One thread: batches this small gain little from a second one, and wait for it when the machine is busy.
    run = api.train("countries", out=out, scorer="complex", dim=256, n3=0.05, validate_every=5, threads=1)
    result = api.evaluate(run)
    title = f"{run.graph!r}\ntest triples, filtered, every entity a candidate"
    print_table(title, list(result.metrics), [list(result.metrics.values())])
    predictor = Predictor.load(run)
    for head, relation, tail in QUESTIONS:
        print_table(
            f"({head or '?'}, {relation}, {tail or '?'})",
            ["answer", "score", "verdict"],
            [[answer.label, answer.score, _verdict(answer)] for answer in untrained(predictor, head, relation, tail)],
        )
    say("Answers seen in training are left out; 'right' means the fact is in the graph but was held out of training.")
    say(
        f"The run is in {out}. Ask it more: {_program()} predict {out} --head France --relation borders --include-known"
    )


def train_unseen(out: Path, facts: Path) -> None:
    """Train a ReFactor GNN, and ask it about a country that it has never seen.

    Args:
        out: Where the run goes.
        facts: Where the facts about the country go.
    """
    say("Training a ReFactor GNN on most of the countries: about half a minute.")
    run = api.train("countries_part", out=out, **UNSEEN)
    facts.write_text("".join("\t".join(fact) + "\n" for fact in ATLANTIS), encoding="utf-8")
    predictor = api.load_predictor(run, new=facts)
    for relation in ASKED_OF_ATLANTIS:
        answers = api.predict(predictor, head="Atlantis", relation=relation, k=3, typed=True)
        rows = [[answer.label, answer.score, answer.probability] for answer in answers]
        print_table(f"(Atlantis, {relation}, ?)", ["answer", "score", "probability"], rows)
    say(f"Atlantis was in no graph: all that is known of it is in {facts}, and nothing was trained.")
    say(f"See both in a browser: {_program()} serve {out} --allow-writes")


def untrained(predictor: Predictor, head: str | None, relation: str, tail: str | None) -> list[Answer]:
    """The best answers that training did not show."""
    everything = predictor.graph.num_entities
    answers = api.predict(predictor, head=head, relation=relation, tail=tail, k=everything, include_known=True)
    return [answer for answer in answers if answer.split != "train"][:NUM_ANSWERS]


def _program() -> str:
    """How to call the command line from here, where the environment may not be activated."""
    program = Path(sys.executable).with_name("refactorgnn")
    here = Path.cwd()
    return str(program.relative_to(here)) if program.is_relative_to(here) else program.name


def _verdict(answer: Answer) -> str:
    return f"right ({answer.split})" if answer.known else ""


if __name__ == "__main__":
    main()
