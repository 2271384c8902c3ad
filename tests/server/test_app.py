"""The routes: the predictor's numbers as JSON, one sentence for every mistake, writes behind the token."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from refactorgnn import Predictor, Run
from refactorgnn.predict.predictor import Question
from refactorgnn.server.app import Settings, create_app
from refactorgnn.server.limits import Limits
from refactorgnn.server.service import PredictorService
from tests.server.conftest import TOKEN, MakeClient

NEWCOMER = {"facts": [["newcomer", "twin of", "person 3"]], "texts": {"newcomer": {"label": "New"}}}
WRITER = {"Authorization": f"Bearer {TOKEN}"}
SHAPES: list[dict[str, Any]] = [
    {"head": "person 1", "relation": "next to"},
    {"relation": "across", "tail": "person 2"},
    {"head": "person 1", "tail": "person 2", "relation": None},
    {"head": 3, "relation": 1},
]


@pytest.mark.parametrize("asked", SHAPES)
@pytest.mark.parametrize("how", [{}, {"k": 3, "include_known": True}, {"k": 100, "typed": True}])
def test_predictions_are_the_predictors(
    client: TestClient, growing_run: Run, asked: dict[str, Any], how: dict[str, Any]
) -> None:
    found = client.post("/v1/predict", json=asked | how)
    question = Question(asked.get("head"), asked.get("relation"), asked.get("tail"))
    expected = Predictor.load(growing_run).answer([question], **{"k": 10, **how})[0]
    assert found.status_code == 200
    assert found.json() == {"answers": [answer.to_dict() for answer in expected]}  # to the last digit of a float


def test_a_batch_is_answered_in_its_order(client: TestClient, growing_run: Run) -> None:
    found = client.post("/v1/predict/batch", json={"questions": SHAPES, "k": 4, "include_known": True}).json()
    questions = [Question(one.get("head"), one.get("relation"), one.get("tail")) for one in SHAPES]
    expected = Predictor.load(growing_run).answer(questions, 4, include_known=True)
    assert [one["answers"] for one in found["results"]] == [[a.to_dict() for a in answers] for answers in expected]


def test_explanations_are_the_predictors(client: TestClient, growing_run: Run) -> None:
    triple = {"head": "person 1", "relation": "next to", "tail": "person 2"}
    found = client.post("/v1/explain", json=triple | {"depth": 2, "num_counterfactuals": 2}).json()
    reasons = Predictor.load(growing_run).explain(*triple.values(), depth=2, num_counterfactuals=2)
    assert found["score"] == reasons.score
    assert [term["contribution"] for term in found["by_tail"]] == [term.contribution for term in reasons.by_tail]
    assert sum(term["contribution"] for term in found["by_head"]) == pytest.approx(found["score"], abs=1e-4)
    assert [one["tail_rank"] for one in found["counterfactuals"]] == [one.tail_rank for one in reasons.counterfactuals]
    assert found["num_facts"] == reasons.num_facts > 2


def test_what_cannot_be_explained_is_said(client_of: MakeClient, tiny_run: Run) -> None:
    client = client_of(PredictorService(Predictor.load(tiny_run)))
    found = client.post("/v1/explain", json={"head": "person 1", "relation": "next to", "tail": "person 2"})
    assert found.status_code == 422
    assert "explain a run of refactor" in found.json()["detail"]


def test_entities_are_added_for_good(client: TestClient, growing_run: Run) -> None:
    found = client.post("/v1/entities", json=NEWCOMER, headers=WRITER)
    assert found.status_code == 201
    assert {key: found.json()[key] for key in ("entities", "num_facts", "num_known")} == {
        "entities": ["newcomer"],
        "num_facts": 1,
        "num_known": 0,
    }
    grown = Predictor.load(growing_run)
    grown.add([("newcomer", "twin of", "person 3")], {"newcomer": "New"})
    answers = client.post("/v1/predict", json={"head": "newcomer", "relation": "across"}).json()["answers"]
    assert answers == [answer.to_dict() for answer in grown.tails("newcomer", "across")]
    assert client.get("/health").json()["num_entities"] == 25
    assert client.get("/v1/entities", params={"text": "newc"}).json()["found"] == [
        {"name": "newcomer", "label": "New", "description": "", "num_facts": 1}
    ]


def test_what_was_added_locally_can_be_asked_but_not_explained(client: TestClient) -> None:
    assert client.post("/v1/entities", json=NEWCOMER | {"mode": "local"}, headers=WRITER).status_code == 201
    found = client.post("/v1/explain", json={"head": "newcomer", "relation": "across", "tail": "person 2"})
    assert found.status_code == 422
    assert "add with mode 'exact'" in found.json()["detail"]


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN}]
)
def test_writers_must_show_the_token(client: TestClient, headers: dict[str, str]) -> None:
    found = client.post("/v1/entities", json=NEWCOMER, headers=headers)
    assert found.status_code == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in found.text
    assert client.get("/health").json()["num_entities"] == 24


def test_writes_are_off_unless_allowed(client_of: MakeClient, growing_run: Run) -> None:
    found = client_of(PredictorService(Predictor.load(growing_run))).post("/v1/entities", json=NEWCOMER, headers=WRITER)
    assert found.status_code == 403
    assert "--allow-writes" in found.json()["detail"]


def test_a_refused_addition_changes_no_answer(client: TestClient) -> None:
    asked = {"questions": SHAPES, "k": 24, "include_known": True}
    before = client.post("/v1/predict/batch", json=asked).content
    wrong = {"facts": [*NEWCOMER["facts"], ["newcomer", "unheard of", "person 3"]]}
    found = client.post("/v1/entities", json=wrong, headers=WRITER)
    assert found.status_code == 422
    assert "'unheard of'" in found.json()["detail"]
    assert client.post("/v1/predict/batch", json=asked).content == before


MISTAKES: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v1/predict", {"head": "person 01", "relation": "next to"}, 404, "'person 0'"),
    ("/v1/predict", {"head": "person 1", "relation": "next too"}, 404, "'next to'"),
    ("/v1/predict", {"head": 24, "relation": "next to"}, 404, "0 to 23"),
    ("/v1/predict", {"head": -1, "relation": "next to"}, 404, "0 to 23"),
    ("/v1/predict", {"head": 10**400, "relation": "next to"}, 404, "0 to 23"),
    ("/v1/predict", {"head": "person 1"}, 422, "one unknown"),
    ("/v1/predict", {"head": "person 1", "relation": "next to", "tail": "person 2"}, 422, "one unknown"),
    ("/v1/predict", {"head": "person 1", "relation": "next to", "k": 101}, 422, "at most 100"),
    ("/v1/predict", {"head": "person 1", "relation": "next to", "k": 0}, 422, "k: "),
    ("/v1/predict", {"head": "person 1", "relation": "next to", "k": "10"}, 422, "k: "),
    ("/v1/predict", {"head": "person 1", "relation": "next to", "k": True}, 422, "k: "),
    ("/v1/predict", {"head": "person 1", "relation": "next to", "file": "/etc/passwd"}, 422, "file: "),
    ("/v1/predict", {"head": "x" * 1001, "relation": "next to"}, 422, "head: string should have at most 1000"),
    ("/v1/predict", {"head": "", "relation": "next to"}, 422, "head: string should have at least 1"),
    ("/v1/predict", {"head": ["person 1"], "relation": "next to"}, 422, "head: input should be a valid string"),
    ("/v1/predict/batch", {"questions": []}, 422, "questions: "),
    ("/v1/predict/batch", {"questions": [SHAPES[0]] * 257}, 422, "at most 256"),
    ("/v1/predict/batch", {"questions": [SHAPES[0], {"head": "person 1"}]}, 422, "questions.1: a question has one"),
    ("/v1/predict/batch", {"questions": [SHAPES[0], {"head": "nobody", "relation": "across"}]}, 404, "'nobody'"),
    ("/v1/explain", {"head": "person 1", "relation": "next to", "tail": "person x"}, 404, "person"),
    ("/v1/explain", SHAPES[0] | {"tail": 0, "depth": 17}, 422, "at most 16"),
    ("/v1/explain", SHAPES[0] | {"tail": 0, "num_counterfactuals": 11}, 422, "at most 10"),
    ("/v1/entities", {}, 422, "nothing new"),
    ("/v1/entities", {"facts": [["a", "twin of"]]}, 422, "facts.0: "),
    ("/v1/entities", NEWCOMER | {"mode": "magic"}, 422, "mode: "),
    ("/v1/entities", {"facts": [["a", "twin of", "b"]] * 10_001}, 422, "at most 10,000"),
]


@pytest.mark.parametrize(("path", "body", "status", "fragment"), MISTAKES)
def test_mistakes_are_told_in_one_sentence(
    client: TestClient, path: str, body: dict[str, Any], status: int, fragment: str
) -> None:
    found = client.post(path, json=body, headers=WRITER)
    assert found.status_code == status
    assert list(found.json()) == ["detail"]
    assert fragment in found.json()["detail"]
    assert re.fullmatch(r"[^\n]+[.?]", found.json()["detail"])


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b'"x"', b"[" * 100_000, b'{"k": ' + b"9" * 5000 + b"}", b"\xff\xfe", b'{"k": NaN}',
     b'{"head": "\\ud800", "relation": "next to"}', b'{"head": "a\\u0000b", "relation": "next to"}'],
)  # fmt: skip
def test_bodies_that_are_no_question(client: TestClient, content: bytes) -> None:
    found = client.post("/v1/predict", content=content, headers={"Content-Type": "application/json"})
    assert 400 <= found.status_code < 500
    assert list(found.json()) == ["detail"]


def test_other_paths_and_methods(client: TestClient) -> None:
    for path in ("/", "/v1", "/v1/predict/", "/../../etc/passwd", "/docs/../../app.py"):
        assert client.get(path, follow_redirects=False).status_code in (404, 307), path
    assert client.get("/nowhere").json()["detail"].startswith("there is nothing at this path")
    found = client.put("/v1/predict")
    assert (found.status_code, found.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("limit", [0, 101, "x"])
def test_searches_are_limited(client: TestClient, limit: object) -> None:
    for path in ("/v1/entities", "/v1/relations"):
        assert client.get(path, params={"limit": limit}).status_code == 422  # type: ignore[dict-item]
    assert len(client.get("/v1/relations").json()["found"]) == 3


def test_the_card_and_the_description(client: TestClient, service: PredictorService) -> None:
    assert client.get("/v1/about").json() == service.about()
    described = client.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    assert schemas["PredictRequest"]["properties"]["k"]["maximum"] == 100
    assert schemas["BatchRequest"]["properties"]["questions"]["maxItems"] == 256
    assert "HTTPValidationError" not in schemas
    for path in described["paths"].values():
        for operation in path.values():
            assert "429" in operation["responses"]


def test_the_page_of_the_api_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert "//" not in page.text
    assert "script-src 'self';" in page.headers["content-security-policy"]
    for asset, size in (("swagger-ui.css", 100_000), ("swagger-ui-bundle.js", 1_000_000), ("start.js", 50)):
        assert f"docs/{asset}" in page.text
        assert len(client.get(f"/docs/{asset}").content) >= size


def test_limits_are_the_servers(client_of: MakeClient, service: PredictorService) -> None:
    client = client_of(service, Settings(Limits(max_k=2, max_questions=1)))
    assert client.post("/v1/predict", json=SHAPES[0] | {"k": 3}).status_code == 422
    assert len(client.post("/v1/predict", json=SHAPES[0] | {"k": 2}).json()["answers"]) == 2
    assert client.post("/v1/predict/batch", json={"questions": SHAPES[:2], "k": 1}).status_code == 422


def test_too_many_waiting_are_sent_away(
    service: PredictorService, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(service, Settings(Limits(max_waiting=1)))
    many = {"questions": [SHAPES[0]] * 250}  # a single one of these takes no thread
    pool = client.app.state.server.workers._quick  # type: ignore[attr-defined]
    monkeypatch.setattr(pool, "_free", 0)
    found = client.post("/v1/predict/batch", json=many)
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    assert client.post("/v1/predict", json=SHAPES[0]).status_code == 200
    assert client.post("/v1/predict", json={"head": "nobody", "relation": 0}).status_code == 503  # it would be searched
    monkeypatch.setattr(pool, "_free", 1)
    assert [client.post("/v1/predict/batch", json=many).status_code for _ in range(3)] == [200] * 3


def test_failures_of_ours_tell_nothing_but_where_to_look(
    service: PredictorService, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(Predictor, "answer", fail)
    found = client_of(service).post("/v1/predict", json=SHAPES[0])
    assert found.status_code == 500
    assert "secret" not in found.text
    failure = next(record for record in caplog.records if record.getMessage() == "failure")
    assert failure.entries["request_id"] in found.text  # type: ignore[attr-defined]
    assert failure.exc_info is not None


def test_settings_that_cannot_work(service: PredictorService) -> None:
    with pytest.raises(ValueError, match="workers=0"):
        create_app(service, Settings(workers=0))
    with pytest.raises(ValueError, match="max_k=0"):
        Limits(max_k=0)
