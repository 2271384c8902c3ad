"""Whether the server holds its load: 200 single predictions a second, each measured from the moment it was due.

The model of ``make demo`` (ComplEx on the bundled graph of countries) is served by ``refactorgnn serve`` in a process
of its own with its default limits. Another process asks, in an open loop: request ``i`` is due at ``i / rate`` seconds
whatever became of those before it, and its latency counts from then, so that a server that stalls is not spared the
requests that a polite client would have held back. Questions are all distinct pairs of entity and relation of the test
split, in both directions, in a random order, over and over.

With wrk installed, it then shows the most that the server can do: a closed loop on eight connections, no rate limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from records import begin, goal, parser, write_record

_MB = 2**20
_LUA = """
local questions = {}
for line in io.lines("QUESTIONS") do questions[#questions + 1] = line end
local place = 0
request = function()
  place = place % #questions + 1
  return wrk.format("POST", "/v1/predict", {["Content-Type"] = "application/json"}, questions[place])
end
"""


def questions_of(run: Path, seed: int) -> list[str]:
    """The bodies of the requests."""
    from refactorgnn import Run

    graph = Run.open(run).graph
    triples = graph.named_triples("test").to_pylist()
    asked = [{"head": t["head"], "relation": t["relation"]} for t in triples]
    asked += [{"relation": t["relation"], "tail": t["tail"]} for t in triples]
    bodies = sorted({json.dumps(one) for one in asked})
    random.Random(seed).shuffle(bodies)
    return bodies


def start_server(run: Path, log: Path, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    """The server and its port, once it listens."""
    command = [sys.executable, "-m", "refactorgnn", "serve", str(run), "--port", "0", *options]
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
            return server, int(found[1])
    raise SystemExit("the server did not start.")


def stop_server(server: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Stop it as a supervisor would, and say how it ended."""
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=60)
    return {"exit_code": server.returncode, "said": said.decode().strip().splitlines()[-1]}


class Connection:
    """A connection that is kept open, for one request at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, body: str) -> int:
        """Send a body to ``/v1/predict``; the status of the answer, which is read to its end and is JSON."""
        # A server closes connections that were idle for a while, as any client knows that keeps some.
        if self.writer is None or self.reader is None or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        content = body.encode()
        self.writer.write(
            b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
        answer = json.loads(await self.reader.readexactly(length))
        status = int(head.split(b" ", 2)[1])
        assert status != 200 or len(answer["answers"]) == 10, answer
        return status


async def open_loop(port: int, bodies: list[str], rate: float, seconds: float) -> dict[str, Any]:
    """Ask at a fixed rate; latencies in milliseconds from when each request was due."""
    loop = asyncio.get_running_loop()
    free = [Connection(port) for _ in range(8)]
    latencies: list[float] = []
    outcomes: Counter[str] = Counter()
    most_under_way = under_way = 0

    async def ask(body: str, due: float) -> None:
        nonlocal under_way, most_under_way
        under_way += 1
        most_under_way = max(most_under_way, under_way)
        connection = free.pop() if free else Connection(port)
        try:
            outcomes[str(await connection.post(body))] += 1
            free.append(connection)
        except (OSError, asyncio.IncompleteReadError, ValueError, TypeError, AssertionError) as error:
            outcomes[type(error).__name__] += 1
        latencies.append(1000 * (loop.time() - due))
        under_way -= 1

    start = loop.time() + 0.5
    tasks = []
    for number in range(round(rate * seconds)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(asyncio.create_task(ask(bodies[number % len(bodies)], due)))
    await asyncio.gather(*tasks)
    took = loop.time() - start
    latencies.sort()

    def quantile(share: float) -> float:
        return round(latencies[min(len(latencies) - 1, int(share * len(latencies)))], 2)

    return {
        "rate": rate,
        "seconds": round(took, 2),
        "requests": len(latencies),
        "requests_per_second": round(len(latencies) / took, 1),
        "outcomes": dict(outcomes),
        "errors": len(latencies) - outcomes["200"],
        "most_under_way": most_under_way,
        "ms": {"p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99), "p999": quantile(0.999),
               "max": round(latencies[-1], 2)},
    }  # fmt: skip


def ask_in_process(port: int, questions: Path, rate: float, seconds: float) -> dict[str, Any]:
    """Run :func:`open_loop` in a process of its own."""
    command = [sys.executable, __file__, "--client-of", str(port), "--questions", str(questions)]
    command += ["--rate", str(rate), "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def hold(run: Path, questions: Path, chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The load that is to be held, with the server's memory before, during and after."""
    server, port = start_server(run, folder / "requests.jsonl")
    process = psutil.Process(server.pid)
    warmup = ask_in_process(port, questions, chosen.rate, chosen.warmup)
    before, cpu, start = process.memory_info().rss, process.cpu_times(), time.perf_counter()
    held = ask_in_process(port, questions, chosen.rate, chosen.seconds)
    after, wall = process.memory_info().rss, time.perf_counter() - start
    busy = process.cpu_times()
    held["warmup"] = {key: warmup[key] for key in ("requests", "errors", "ms")}
    held["rss_mb"] = {"before": round(before / _MB, 1), "after": round(after / _MB, 1)}
    held["rss_growth_mb"] = round((after - before) / _MB, 2)
    held["server_cpu_share"] = round((busy.user + busy.system - cpu.user - cpu.system) / wall, 3)
    held["end"] = stop_server(server)
    held["log_lines"] = sum(1 for _ in (folder / "requests.jsonl").open("rb"))
    return held


def capacity(run: Path, questions: Path, folder: Path, workers: int, seconds: int) -> dict[str, Any] | None:
    """What the server can do at most, as wrk measures it; None without wrk."""
    if shutil.which("wrk") is None:
        return None
    script = folder / "ask.lua"
    script.write_text(_LUA.replace("QUESTIONS", str(questions)), encoding="utf-8")
    server, port = start_server(run, folder / "capacity.jsonl", "--rate", "0", "--workers", str(workers))
    command = ["wrk", "-t1", "-c8", f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stop_server(server)
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    return {
        "workers": workers,
        "connections": 8,
        "requests_per_second": float(rate[1]) if rate else None,
        "errors": int(wrong[1]) if wrong else 0,
    }


def measure(chosen: argparse.Namespace) -> None:
    """Train, serve, ask, record."""
    origin = begin(chosen.threads, ("fastapi", "uvicorn"))
    origin["provenance"]["hardware"]["cores"] = os.cpu_count()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = chosen.run or folder / "run"
        if chosen.run is None:
            subprocess.run([sys.executable, "-m", "refactorgnn.demo", "--out", str(run)], check=True, stdout=2)
        questions = folder / "questions.jsonl"
        bodies = questions_of(run, seed=0)
        questions.write_text("\n".join(bodies) + "\n", encoding="utf-8")
        held = hold(run, questions, chosen, folder)
        most = [found for workers in (1, 2) if (found := capacity(run, questions, folder, workers, 10))]
    goals = [
        goal(held["ms"]["p99"], "<=", 50, f"p99 in ms at {chosen.rate:g} requests/s for {chosen.seconds:g} s"),
        goal(held["errors"], "<=", 0, "requests that were not answered with 200"),
        goal(held["rss_growth_mb"], "<=", 2, "MB by which the server's resident memory grew after the warm-up"),
    ]
    body = {"distinct_questions": len(bodies), "k": 10, "load": held, "capacity": most, "goals": goals}
    write_record("serve_load", body, origin, chosen.out)


def main() -> None:
    """Read the command line."""
    options = parser(__doc__ or "", "serve_load")
    options.add_argument("--run", type=Path, help="a run to serve instead of training that of the demonstration")
    options.add_argument("--rate", type=float, default=200, help="requests a second (default 200)")
    options.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    options.add_argument("--warmup", type=float, default=10, help="seconds of the same load before (default 10)")
    options.add_argument("--client-of", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options.add_argument("--questions", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.client_of:
        bodies = chosen.questions.read_text(encoding="utf-8").splitlines()
        print(json.dumps(asyncio.run(open_loop(chosen.client_of, bodies, chosen.rate, chosen.seconds))))
    else:
        measure(chosen)


if __name__ == "__main__":
    main()
