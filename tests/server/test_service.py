"""The service: additions are whole or not at all, readers see one state, names are found, nothing private is told."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

import refactorgnn
from refactorgnn import Predictor, Run, UserError
from refactorgnn.predict.predictor import Answer, Question
from refactorgnn.server.name_search import NameIndex
from refactorgnn.server.service import PredictorService
from tests.conftest import ODD_NAME
from tests.server.conftest import TOKEN

FACTS = [("newcomer", "twin of", "person 3"), ("person 7", "next to", "newcomer")]
QUESTIONS = [
    Question("person 1", "next to", None),
    Question(None, "across", "person 2"),
    Question("person 1", None, "person 2"),
]


def everything(predictor: Predictor) -> list[list[Answer]]:
    return predictor.answer(QUESTIONS, k=100, include_known=True)


@pytest.mark.parametrize("mode", ["exact", "local"])
def test_an_addition_answers_as_the_predictor_would(service: PredictorService, growing_run: Run, mode: Any) -> None:
    alone = Predictor.load(growing_run)
    before = everything(alone)
    added = service.add(FACTS, {"newcomer": ("The newcomer", "Came late.")}, mode)
    alone.add(FACTS, {"newcomer": ("The newcomer", "Came late.")}, mode=mode)
    assert (added.entities, added.num_facts, added.num_known) == (("newcomer",), 2, 0)
    assert everything(service.predictor) == everything(alone) != before
    assert len(everything(service.predictor)[0]) == 24  # everybody but the one asked about
    assert service.about()["added"] == {"num_entities": 1, "num_facts": 2}
    assert [found.label for found in service.search_entities("NEWC")] == ["The newcomer"]


@pytest.mark.parametrize(
    ("facts", "texts", "fragment"),
    [
        ([*FACTS, ("newcomer", "unheard of", "person 3")], None, "unheard of"),
        ([*FACTS, ("newcomer", "twin of", "")], None, "fact 3"),
        (FACTS, {"person 1": "Again"}, "in the graph already"),
        ([("person 1", "twin of", "person 0")], None, "nothing new"),
        ("newcomer\ttwin of", None, "the facts, line 1"),
        ("", None, "the facts"),
    ],
)
def test_a_refused_addition_changes_nothing(service: PredictorService, facts: Any, texts: Any, fragment: str) -> None:
    before, predictor, card = everything(service.predictor), service.predictor, service.about()
    with pytest.raises(UserError, match=fragment):
        service.add(facts, texts)
    assert service.predictor is predictor
    assert everything(service.predictor) == before
    assert service.about() == card
    assert not service.search_entities("newcomer")


def test_an_addition_that_breaks_off_changes_nothing(
    service: PredictorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, predictor = everything(service.predictor), service.predictor
    with monkeypatch.context() as broken:
        broken.setattr("refactorgnn.server.service._Snapshot.__init__", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            service.add(FACTS)
    assert service.predictor is predictor
    assert everything(service.predictor) == before
    assert service.add(FACTS).num_facts == 2  # the lock was given back


def test_facts_may_be_text(service: PredictorService, growing_run: Run) -> None:
    other = PredictorService(Predictor.load(growing_run), allow_writes=True)
    service.add("newcomer\ttwin of\tperson 3\n\nperson 7\tnext to\tnewcomer\n")
    other.add('head,relation,tail\n"newcomer","twin of",person 3\nperson 7,next to,newcomer')
    assert everything(service.predictor) == everything(other.predictor)
    assert service.predictor.graph.num_entities == 25


def test_readers_see_a_state_before_or_after_an_addition(service: PredictorService) -> None:
    states, stop = [everything(service.predictor)], threading.Event()
    seen: list[list[list[Answer]]] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(everything(service.predictor))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(6):
        service.add([(f"newcomer {number}", "twin of", f"person {number}")], mode="exact")
        states.append(everything(service.predictor))
    stop.set()
    for reader in readers:
        reader.join()
    assert len({json.dumps([[a.to_dict() for a in one] for one in state]) for state in states}) == 7
    assert seen
    assert all(answers in states for answers in seen)


def test_additions_at_the_same_time_all_count(service: PredictorService) -> None:
    writers = [
        threading.Thread(target=service.add, args=([(f"newcomer {number}", "twin of", "person 1")],))
        for number in range(5)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert service.about()["added"] == {"num_entities": 5, "num_facts": 5}


def test_writes_are_off_unless_allowed(growing_run: Run) -> None:
    service = PredictorService(Predictor.load(growing_run))
    with pytest.raises(UserError, match="--allow-writes"):
        service.add(FACTS)
    assert service.token is None
    assert not service.is_token("")
    with pytest.raises(UserError, match="writes, which are off"):
        PredictorService(service.predictor, token=TOKEN)


@pytest.mark.parametrize("token", ["short", "with a blank in the middle", "ümläute are no ASCII"])
def test_weak_tokens_are_refused(service: PredictorService, token: str) -> None:
    with pytest.raises(UserError, match="too weak"):
        PredictorService(service.predictor, allow_writes=True, token=token)


def test_tokens(service: PredictorService) -> None:
    assert service.is_token(TOKEN)
    assert not service.is_token(TOKEN[:-1])
    assert not service.is_token("é")
    made_up = [PredictorService(service.predictor, allow_writes=True).token or "" for _ in range(2)]
    assert made_up[0] != made_up[1]
    assert min(map(len, made_up)) >= 43  # 32 bytes


def test_names_are_found_by_what_is_typed(service: PredictorService) -> None:
    # "person 1" whole, then by start: 10 … 19, more facts first, then in the order of the graph.
    graph = service.predictor.graph
    ends = [name for row in graph.named_triples("train").to_pylist() for name in (row["head"], row["tail"])]
    rest = sorted((f"person {number}" for number in range(10, 20)), key=lambda name: (-ends.count(name), name))
    found = service.search_entities("Person  1", limit=20)
    assert [one.name for one in found] == ["person 1", *rest]
    assert [one.num_facts for one in found] == [ends.count(one.name) for one in found]
    assert [one.name for one in service.search_entities("ile")] == [ODD_NAME]  # without its accent
    assert service.search_entities("")[0].name == max(graph.entities, key=ends.count)
    assert len(service.search_entities("", limit=3)) == 3
    assert service.search_entities("nobody") == []
    assert {one.name: one.num_facts for one in service.search_relations("")} == {
        name: sum(row["relation"] == name for row in graph.named_triples("train").to_pylist())
        for name in ("next to", "twin of", "across")
    }


def test_whole_names_come_before_starts_words_and_parts() -> None:
    names = ["Nice", "Venice", "Nicetown", "Very nice", "nice"]
    index = NameIndex(names, names, [""] * 5, np.array([1, 9, 5, 7, 2]))
    assert [one.name for one in index.search("NICE", 9)] == ["nice", "Nice", "Nicetown", "Very nice", "Venice"]


def test_the_card_tells_what_the_run_says_and_no_place(service: PredictorService, growing_run: Run) -> None:
    card = service.about()
    assert card["dataset"]["splits"] == {split: len(rows) for split, rows in growing_run.graph.splits.items()}
    assert card["dataset"]["num_triples"] == sum(card["dataset"]["splits"].values())
    assert card["model"]["settings"]["layers"] == 2
    best = next(row for row in growing_run.records() if row["epoch"] == growing_run.sidecar["best_epoch"])
    assert card["metrics"] == {name: value for name, value in best.items() if name.startswith("valid_")}
    assert card["metrics"]["valid_mrr"] == pytest.approx(growing_run.sidecar["valid_mrr"], abs=1e-6)
    assert "/" not in json.dumps({key: card[key] for key in ("dataset", "model", "metrics")})


def test_the_card_of_an_ensemble(growing_run: Run, tiny_run: Run, tmp_path: Any) -> None:
    run = refactorgnn.ensemble([growing_run.path, tiny_run.path], out=tmp_path / "both")
    card = PredictorService(Predictor.load(run)).about()
    assert card["model"]["name"] == "ensemble"
    assert len(card["model"]["settings"]["members"]) == len(run.config.members)  # type: ignore[union-attr]
    assert card["metrics"] == {"valid_mrr": run.sidecar["valid_mrr"]}
    assert str(tmp_path.parent) not in json.dumps(card)
    assert "/" not in json.dumps(card["model"])
