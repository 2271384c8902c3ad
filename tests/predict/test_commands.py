"""``predict`` with files, with new entities and for all missing links; ``explain``; and their mistakes."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

import refactorgnn
from refactorgnn import Predictor, Run
from refactorgnn.predict import Question
from refactorgnn.predict.candidates import log_odds
from refactorgnn.predict.missing import write_missing_links
from refactorgnn.predict.open_questions import curve_over_all_questions
from tests.conftest import ODD_NAME, Cli


@pytest.fixture(scope="module")
def part_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings: dict[str, Any] = {"model": "refactor", "layers": 2, "dim": 16, "epochs": 6, "validate_every": 3}
    settings |= {"features": "signature+random", "alpha": 0.1, "threads": 1}
    return refactorgnn.train("countries_part", out=tmp_path_factory.mktemp("runs") / "part", progress=False, **settings)


LIKELY = 0.01


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize(("ending_in", "ending_out"), [("csv", "csv"), ("tsv", "parquet"), ("csv", "tsv")])
def test_questions_in_answers_out(ending_in: str, ending_out: str, cli: Cli, tiny_run: Run, tmp_path: Path) -> None:
    mark = "," if ending_in == "csv" else "\t"
    lines = [
        ["head", "relation", "tail"],
        ["person 3", "across", ""],
        ["?", "next to", ODD_NAME],
        ["person 1", "", "person 2"],
    ]
    asked, answered = tmp_path / f"asked.{ending_in}", tmp_path / f"answered.{ending_out}"
    asked.write_text("".join(mark.join(line) + "\n" for line in lines), encoding="utf-8")
    outcome = cli("predict", tiny_run.path, "--questions", asked, "--answers", answered, "-k", "3", "--json")
    assert json.loads(outcome.out) == {"answers": str(answered), "count": len(rows_of(answered))}
    predictor = Predictor.load(tiny_run)
    expected = [
        (number, rank, answer.entity)
        for number, question in enumerate(
            [
                Question("person 3", "across", None),
                Question(None, "next to", ODD_NAME),
                Question("person 1", None, "person 2"),
            ],
            start=1,
        )
        for rank, answer in enumerate(predictor.answer([question], 3)[0], start=1)
    ]
    unknown = {1: "tail", 2: "head", 3: "relation"}
    found = [(n := int(row["question"]), int(row["rank"]), row[unknown[n]]) for row in rows_of(answered)]
    assert found == expected


def test_a_file_with_a_mistake_is_refused_by_row_and_nothing_is_written(
    cli: Cli, tiny_run: Run, tmp_path: Path
) -> None:
    asked, answered = tmp_path / "asked.csv", tmp_path / "answered.csv"
    asked.write_text("head,relation,tail\nperson 3,across,\nperson 4,across,person 3\n", encoding="utf-8")
    cli("predict", tiny_run.path, "--questions", asked, "--answers", answered).refused(
        asked, "question 2", "one unknown"
    )
    asked.write_text("head,relation,tail\nperson 3,across,\nnobody,across,\n", encoding="utf-8")
    cli("predict", tiny_run.path, "--questions", asked, "--answers", answered).refused(asked, "question 2", "'nobody'")
    assert not answered.exists()


def test_all_missing_links_above_a_probability(cli: Cli, part_run: Run, tmp_path: Path) -> None:
    """Against every pair of entities, asked one relation at a time, written down plainly."""
    found_file, predictor = tmp_path / "missing.parquet", Predictor.load(part_run)
    outcome = cli(
        "predict", part_run.path, "--all-above", str(LIKELY), "--relation", "speaks", "--answers", found_file, "--json"
    )
    found = {(row["head"], row["tail"]): row["probability"] for row in rows_of(found_file)}
    assert json.loads(outcome.out)["count"] == len(found)
    relation, graph = predictor.graph.relations.id("speaks"), predictor.graph
    everyone = torch.arange(graph.num_entities)
    scores = predictor.bound.scores(everyone, torch.full_like(everyone, relation))
    known = torch.zeros(graph.num_entities, graph.num_entities, dtype=torch.bool)
    facts = graph.triples()
    facts = facts[facts[:, 1] == relation]
    known[facts[:, 0], facts[:, 2]] = True
    known.fill_diagonal_(True)  # nobody speaks itself
    curve = curve_over_all_questions(predictor, typed=False)
    assert curve is not None
    likely = curve(log_odds(scores, known))
    expected = {
        (graph.entities[h], graph.entities[t]): float(likely[h, t])
        for h, t in ((likely >= LIKELY) & ~known).nonzero().tolist()
    }
    assert len(expected) > 3
    assert found == pytest.approx(expected, rel=1e-4)
    typed = tmp_path / "typed.tsv"
    write_missing_links(predictor, typed, LIKELY, relation="speaks", typed=True)
    train = graph.triples("train")
    train = train[train[:, 1] == relation]
    right = set(product(*({graph.entities[e] for e in train[:, place].tolist()} for place in (0, 2))))
    assert {(row["head"], row["tail"]) for row in rows_of(typed)} <= right
    about_borders = tmp_path / "borders.tsv"
    assert write_missing_links(predictor, about_borders, 0.001, relation="borders") > 0
    assert all(row["head"] != row["tail"] for row in rows_of(about_borders))


FACTS = "Atlantis\tborders\tFrance\nAtlantis\tspeaks\tFrench\nAtlantis\tin_continent\tEurope\n"


def test_a_known_entity_that_is_misspelt_is_pointed_out(cli: Cli, part_run: Run, tmp_path: Path) -> None:
    facts = tmp_path / "facts.tsv"
    facts.write_text("Atlantis\tborders\tPortugl\n", encoding="utf-8")
    options = ("--new", facts, "--head", "Atlantis", "--relation", "speaks", "-k", "1")
    outcome = cli("predict", part_run.path, *options)
    assert outcome.code == 0
    assert "2 new entities: Atlantis, Portugl." in outcome.err
    assert "'Portugl' is new; the graph knows 'Portugal'." in outcome.err
    assert "'Atlantis' is new" not in outcome.err


def test_new_entities_from_files(cli: Cli, part_run: Run, tmp_path: Path) -> None:
    facts, texts = tmp_path / "facts.tsv", tmp_path / "texts.tsv"
    facts.write_text(FACTS, encoding="utf-8")
    texts.write_text("entity\tlabel\tdescription\nAtlantis\tIsle of Atlas\tA country.\n", encoding="utf-8")
    asking = ("--head", "Isle of Atlas", "--relation", "speaks", "-k", "3", "--json")
    for mode in ("exact", "local"):
        options = ("--new", facts, "--new-texts", texts, "--new-mode", mode)
        found = json.loads(cli("predict", part_run.path, *options, *asking).out)
        predictor = Predictor.load(part_run)
        predictor.add(
            [tuple(line.split("\t")) for line in FACTS.splitlines()],  # type: ignore[misc]
            {"Atlantis": ("Isle of Atlas", "A country.")},
            mode=mode,  # type: ignore[arg-type]
        )
        assert [a["entity"] for a in found] == [a.entity for a in predictor.tails("Atlantis", "speaks", 3)]
        assert "French" not in [a["entity"] for a in found]  # known by now
    facts.write_text(FACTS + "Atlantis\tspeak\tGreek\n", encoding="utf-8")
    cli("predict", part_run.path, "--new", facts, *asking).refused("'speak'", "'speaks'")
    cli("predict", part_run.path, "--new-mode", "local", *asking).refused("--new-mode", "--new FILE")


def test_explain_for_people_and_machines(cli: Cli, part_run: Run) -> None:
    asking = ("explain", part_run.path, "--head", "France", "--relation", "borders", "--tail", "Spain", "--depth", "2")
    outcome = cli(*asking, "--counterfactual")
    assert outcome.code == 0, outcome.err
    assert "made the state of Spain" in outcome.out
    assert "made the state of France" in outcome.out
    assert "n[v]" in outcome.out
    assert "features" in outcome.out
    assert "without the fact" in outcome.out
    found = json.loads(cli(*asking, "--json").out)
    for view in ("by_tail", "by_head"):
        sizes = [abs(term["contribution"]) for term in found[view]]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(term["contribution"] for term in found[view]) == pytest.approx(found["score"], abs=1e-5 * max(sizes))


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (("--all-above", "0.9"), ("--all-above needs a file", "--answers")),
        (("--all-above", "0.9", "--answers", "x.csv", "-k", "3"), ("-k", "--all-above")),
        (("--all-above", "0.9", "--answers", "x.csv", "--head", "person 3"), ("--head", "--all-above")),
        (("--all-above", "0.9", "--questions", "a.csv", "--answers", "x.csv"), ("together",)),
        (("--all-above", "1.5", "--answers", "x.csv"), ("1.5", "probability")),
        (("--all-above", "0.5", "--answers", "x.csv"), ("too few validation triples",)),
        (("--answers", "x.csv", "--head", "person 3", "--relation", "across"), ("--answers has nothing to hold",)),
        (("--head", "person 3"), ("one unknown",)),
    ],
)
def test_forms_that_do_not_fit(options: tuple[str, ...], fragments: tuple[str, ...], cli: Cli, tiny_run: Run) -> None:
    cli("predict", tiny_run.path, *options).refused(*fragments)


def test_a_model_without_layers_is_not_explained(cli: Cli, tiny_run: Run) -> None:
    asking = ("--head", "person 3", "--relation", "across", "--tail", "person 9")
    cli("explain", tiny_run.path, *asking).refused("Lookup", "refactor with finitely many layers")
