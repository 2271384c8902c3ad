"""The server as a process: it starts, answers, is told to stop, finishes what is under way, and ends with 0."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refactorgnn import Predictor, Run
from refactorgnn.server.running import allowed_hosts
from tests.conftest import Cli
from tests.server.conftest import TOKEN

QUESTION = {"head": "person 1", "relation": "next to"}
Start = Callable[..., tuple["subprocess.Popen[str]", str, int]]


@pytest.fixture
def start(growing_run: Run) -> Iterator[Start]:
    """Start a server; what it said until it was ready, and its port."""
    servers: list[subprocess.Popen[str]] = []

    def begin(*options: str | Path) -> tuple[subprocess.Popen[str], str, int]:
        command = [sys.executable, "-m", "refactorgnn", "serve", str(growing_run.path), "--port", "0"]
        server = subprocess.Popen(
            [*command, *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        servers.append(server)
        assert server.stderr is not None
        said = ""
        for line in server.stderr:
            said += line
            if found := re.search(r"served at http://127\.0\.0\.1:(\d+);", line):
                return server, said, int(found[1])
        raise AssertionError(said)

    yield begin
    for server in servers:
        if server.poll() is None:
            server.kill()
        server.communicate()


def ask(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if path != "/metrics" else text


def refuses(port: int) -> bool:
    """Whether a server lets no one in any more, within a while."""
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.1)
    return False


def test_it_answers_and_stops(start: Start, growing_run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n", encoding="utf-8")
    server, said, port = start("--allow-writes", "--token-file", tmp_path / "token")
    expected = [answer.to_dict() for answer in Predictor.load(growing_run).tails("person 1", "next to")]
    assert ask(port, "POST", "/v1/predict", QUESTION) == (200, {"answers": expected})
    facts = {"facts": [["newcomer", "twin of", "person 3"]]}
    assert ask(port, "POST", "/v1/entities", facts)[0] == 401
    assert ask(port, "POST", "/v1/entities", facts, Authorization=f"Bearer {TOKEN}")[0] == 201
    assert ask(port, "GET", "/health", Host="evil.example")[0] == 400
    # A chunked body, one byte too long and not at its end: refused before it is all there, and the server goes on. More
    # bytes would meet a closed connection, now and then before the answer is read.
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        raw.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(16):
            raw.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        raw.sendall(b"1\r\n \r\n")
        assert raw.recv(12) == b"HTTP/1.1 413"
    assert ask(port, "GET", "/health")[1]["num_entities"] == 25
    # A request is under way when the signal comes: its body is still missing, and is sent after.
    content = json.dumps(QUESTION).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        head = (
            b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        )
        raw.sendall(head % len(content) + b"\r\n" + content[:5])
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        assert refuses(port)
        raw.sendall(content[5:])
        assert raw.recv(15) == b"HTTP/1.1 200 OK"
        out, err = server.communicate(timeout=30)
    assert server.returncode == 0
    assert err == "stopped: all requests under way were answered.\n"
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["status"] for line in lines] == [200, 401, 201, 400, 413, 200, 200]
    assert TOKEN not in said + err + out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_token_is_made_up_and_shown_once(start: Start, number: signal.Signals) -> None:
    server, said, port = start("--allow-writes")
    shown = re.search(r"shown this once: (\S+)\n", said)
    assert shown is not None
    facts = {"facts": [["newcomer", "twin of", "person 3"]]}
    assert ask(port, "POST", "/v1/entities", facts, Authorization=f"Bearer {shown[1]}")[0] == 201
    server.send_signal(number)
    out, err = server.communicate(timeout=30)
    assert (server.returncode, err) == (0, "stopped: all requests under way were answered.\n")
    assert shown[1] not in out


def test_it_does_not_wait_forever(start: Start) -> None:
    server, _, port = start("--patience", "0.5")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        raw.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=30)
    assert server.returncode == 1
    assert "some requests under way were cut off" in err


def test_many_clients_at_once(start: Start, growing_run: Run) -> None:
    server, _, port = start("--workers", "3")
    predictor = Predictor.load(growing_run)
    wrong: list[object] = []

    def client(first: int) -> None:
        for number in range(first, first + 24):
            name = predictor.graph.entities[number % 24]
            expected = {"answers": [answer.to_dict() for answer in predictor.tails(name, "across", 3)]}
            found = ask(port, "POST", "/v1/predict", {"head": name, "relation": "across", "k": 3})
            if found != (200, expected):
                wrong.append(found)

    threads = [threading.Thread(target=client, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 'route="/v1/predict",status="200"} 96.0' in ask(port, "GET", "/metrics")[1]
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0


def test_mistakes_on_the_command_line(cli: Cli, growing_run: Run, tmp_path: Path) -> None:
    run = growing_run.path
    cli("serve", tmp_path / "nowhere", "--port", "0").refused("there is no such run folder")
    cli("serve", run, "--port", "65536").refused("port=65536")
    cli("serve", run, "--host", "256.0.0.1").refused("256.0.0.1")
    cli("serve", run, "--port", "0", "--workers", "0").refused("workers=0")
    cli("serve", run, "--max-k", "0").refused("max_k=0")
    cli("serve", run, "--token-file", tmp_path / "token").refused("--allow-writes")
    cli("serve", run, "--allow-writes", "--token-file", tmp_path / "token").refused("token cannot be read")
    (tmp_path / "token").write_text("\n", encoding="utf-8")
    cli("serve", run, "--allow-writes", "--token-file", tmp_path / "token").refused("no token in it")
    (tmp_path / "token").write_text("short", encoding="utf-8")
    cli("serve", run, "--port", "0", "--allow-writes", "--token-file", tmp_path / "token").refused("too weak")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cli("serve", run, "--port", str(port)).refused(str(port), "in use")


def test_the_extra_is_named_where_it_is_missing(cli: Cli, growing_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cli("serve", growing_run.path).refused("refactorgnn[serve]")


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"localhost", "127.0.0.1", "::1"}),
        ("127.0.0.5", {"localhost", "127.0.0.1", "::1", "127.0.0.5"}),
        ("localhost", {"localhost", "127.0.0.1", "::1"}),
        ("::1", {"localhost", "127.0.0.1", "::1"}),
        ("0.0.0.0", None),
        ("example.org", None),
    ],
)
def test_a_server_on_loopback_has_loopback_names(host: str, names: set[str] | None) -> None:
    assert allowed_hosts(host) == names
