"""The gate: sizes, rates, names and times; and what it writes down about a request."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from refactorgnn.server.app import Settings
from refactorgnn.server.gate import Gate
from refactorgnn.server.limits import Limits, TokenBuckets, client_of
from refactorgnn.server.logs import JsonFormatter
from refactorgnn.server.metrics import Metrics
from refactorgnn.server.service import PredictorService
from tests.server.conftest import MakeClient

QUESTION = {"head": "person 1", "relation": "next to"}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_rate_and_no_more() -> None:
    clock = Clock()
    buckets = TokenBuckets(5, clock=clock)
    assert [buckets.wait("a") for _ in range(5)] == [0.0] * 5
    assert buckets.wait("a") == pytest.approx(0.2)
    assert buckets.wait("b") == 0  # another client
    clock.now = 0.19
    assert buckets.wait("a") == pytest.approx(0.01)
    granted = 0
    for tick in range(1, 1001):  # ten seconds, a request every 10 ms
        clock.now = 0.19 + tick / 100
        granted += buckets.wait("a") == 0
    assert granted == 50
    clock.now += 1000
    assert [buckets.wait("a") == 0 for _ in range(6)] == [True] * 5 + [False]  # no more than a second's are saved up


def test_the_clients_that_are_remembered_are_bounded() -> None:
    buckets = TokenBuckets(1, most_clients=100, clock=Clock())
    for number in range(1000):
        assert buckets.wait(f"10.0.{number // 256}.{number % 256}") == 0
        assert buckets.wait("192.0.2.1") == (0 if number == 0 else 1)  # seen again and again, it is not forgotten
    assert len(buckets) == 100


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a:b", "a:b"),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_an_address_or_a_network(address: str, client: str) -> None:
    assert client_of(address) == client


def test_requests_beyond_the_rate_are_refused(client_of: MakeClient, service: PredictorService) -> None:
    client = client_of(service, Settings(Limits(rate=3)))
    answers = [client.get("/health") for _ in range(5)]
    assert [answer.status_code for answer in answers[:3]] == [200] * 3
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "1"
    unlimited = client_of(service, Settings(Limits(rate=0)))
    assert {unlimited.get("/health").status_code for _ in range(50)} == {200}


def test_large_bodies_are_refused(client_of: MakeClient, service: PredictorService) -> None:
    client = client_of(service, Settings(Limits(max_body_bytes=100)))
    body = json.dumps(QUESTION)
    just = body + " " * (100 - len(body))
    headers = {"Content-Type": "application/json"}
    assert client.post("/v1/predict", content=just, headers=headers).status_code == 200
    found = client.post("/v1/predict", content=just + " ", headers=headers)
    assert found.status_code == 413
    assert "100 bytes" in found.json()["detail"]


def through(gate: Gate, messages: Iterator[dict[str, Any]], *headers: tuple[bytes, bytes]) -> tuple[int | None, int]:
    """Send a body piece by piece: the status, and how many pieces were read."""
    sent: list[Any] = []
    num_read = 0

    async def receive() -> Any:
        nonlocal num_read
        for message in messages:
            num_read += 1
            return message
        await asyncio.sleep(60)
        return None

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": list(headers), "client": ("192.0.2.1", 1)}
    asyncio.run(gate(scope, receive, send))
    return (sent[0]["status"] if sent else None), num_read


def pieces(count: int, size: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"type": "http.request", "body": b"x" * size, "more_body": number < count - 1}


CHUNKED = (b"transfer-encoding", b"chunked")


def test_a_stream_is_read_no_further_than_the_limit(service: PredictorService) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        await PlainTextResponse(str(len(message["body"])))(scope, receive, send)

    metrics = Metrics(service)
    gate = Gate(app, Limits(max_body_bytes=1000, body_seconds=1), metrics)
    assert through(gate, pieces(10, 100), CHUNKED) == (200, 10)
    assert through(gate, pieces(1000, 100), CHUNKED) == (413, 11)
    assert through(gate, pieces(1, 100), (b"content-length", b"1001")) == (413, 0)
    # A length that lies is no way around: what counts is what comes.
    assert through(gate, pieces(1000, 100), (b"content-length", b"10")) == (413, 11)
    stalled = iter([{"type": "http.request", "body": b"x", "more_body": True}])
    assert through(gate, stalled, CHUNKED) == (408, 1)
    assert through(gate, iter([{"type": "http.disconnect"}]), CHUNKED) == (None, 1)
    counts = counted(metrics.render().decode())
    assert {labels["status"]: value for labels, value in counts} == {"200": 1, "413": 3, "408": 1, "499": 1}
    assert "refactorgnn_requests_in_flight 0.0" in metrics.render().decode()


def counted(text: str, name: str = "refactorgnn_requests_total") -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(text)
    return [(sample.labels, sample.value) for family in families for sample in family.samples if sample.name == name]


def test_only_its_own_names_are_answered_to(client_of: MakeClient, service: PredictorService) -> None:
    client = client_of(service, Settings(allowed_hosts=frozenset({"localhost", "127.0.0.1", "::1"})))
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"):
        assert client.get("/health", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::2]"):
        assert client.get("/health", headers={"Host": host}).status_code == 400, host
    ours = {"Host": "localhost:8000"}
    for origin in ("http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"):
        assert client.get("/health", headers=ours | {"Origin": origin}).status_code == 200, origin
    for origin in ("http://evil.example", "null", "http://localhost.evil.example:8000", "file://"):
        assert client.get("/health", headers=ours | {"Origin": origin}).status_code == 400, origin
    assert client_of(service).get("/health", headers={"Host": "any", "Origin": "http://other"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ([(b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000")], True),
        ([(b"host", b"localhost:8000"), (b"origin", b"http://evil.example")], False),
        ([(b"host", b"evil.example:8000"), (b"origin", b"http://evil.example:8000")], False),
    ],
)
def test_websockets_of_other_pages_are_closed(
    service: PredictorService, headers: list[tuple[bytes, bytes]], is_let_in: bool
) -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    async def send(message: Any) -> None:
        sent.append(message)

    gate = Gate(app, Limits(), Metrics(service), frozenset({"localhost"}))
    asyncio.run(gate({"type": "websocket", "headers": headers}, send, send))
    assert sent == [{"type": "websocket.accept"} if is_let_in else {"type": "websocket.close", "code": 1008}]


def test_requests_are_counted_by_route_and_status(client: TestClient) -> None:
    for _ in range(3):
        client.post("/v1/predict", json=QUESTION)
    client.post("/v1/predict", json=QUESTION | {"head": "nobody"})
    client.post("/v1/predict/batch", json={"questions": [QUESTION] * 4})
    client.get("/no/such/path/of/mine")
    text = client.get("/metrics").text
    assert {(one["method"], one["route"], one["status"]): value for one, value in counted(text)} == {
        ("POST", "/v1/predict", "200"): 3,
        ("POST", "/v1/predict", "404"): 1,
        ("POST", "/v1/predict/batch", "200"): 1,
        ("GET", "other", "404"): 1,
    }
    assert counted(text, "refactorgnn_questions_total") == [({}, 7)]
    assert counted(text, "refactorgnn_entities") == [({}, 24)]
    seconds = counted(text, "refactorgnn_request_seconds_count")
    assert [value for labels, value in seconds if labels["route"] == "/v1/predict"] == [4]
    model = counted(text, "refactorgnn_model_info")[0][0]
    assert (model["model"], model["dim"]) == ("refactor", "8")


def test_a_request_leaves_one_line_that_tells_nothing_of_its_content(client: TestClient) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("refactorgnn.server.requests")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        found = client.post("/v1/predict?head=secret", json=QUESTION, headers={"Authorization": "Bearer secret"})
        client.get("/private/path")
    finally:
        logger.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [set(line) for line in lines] == [
        {"time", "level", "event", "method", "route", "status", "ms", "request_id"}
    ] * 2
    assert (lines[0]["method"], lines[0]["route"], lines[0]["status"]) == ("POST", "/v1/predict", 200)
    assert lines[0]["request_id"] == found.headers["x-request-id"] != lines[1]["request_id"]
    assert 0 < lines[0]["ms"] < 60_000
    for word in ("secret", "person", "private", "testclient"):
        assert word not in stream.getvalue()
