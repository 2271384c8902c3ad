"""What every request passes: a number, the limits, and at the end a line in the log and a count in the metrics."""

from __future__ import annotations

import logging
import math
import secrets
import time

import anyio
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from refactorgnn.server.limits import Limits, TokenBuckets
from refactorgnn.server.logs import REQUESTS, entries
from refactorgnn.server.metrics import Metrics

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_LOG = logging.getLogger(REQUESTS)
# As nginx has it: the client went away before there was an answer.
_CLIENT_LEFT = 499


class Gate:
    """ASGI middleware around the whole application. Of what is not HTTP, only the names are looked at.

    Args:
        app: The application.
        limits: Body size and rate.
        metrics: Where requests are counted.
        allowed_hosts: The names under which the server may be called, without ports; None: any. A server on loopback
            must not answer to other names, nor to pages from elsewhere: a web page could reach it by its address, or by
            a name of its own that it made to mean this machine.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, metrics: Metrics, allowed_hosts: frozenset[str] | None = None
    ) -> None:
        self._app, self._limits, self._metrics, self._allowed_hosts = app, limits, metrics, allowed_hosts
        self._buckets = TokenBuckets(limits.rate) if limits.rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "websocket" and not self._is_called_rightly(scope):
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, request_id, status = time.perf_counter(), secrets.token_hex(8), 500
        scope.setdefault("state", {})["request_id"] = request_id

        async def numbered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        self._metrics.in_flight.inc()
        try:
            answer: ASGIApp | None = self._refusal(scope)
            if answer is None:
                answer, receive = await self._with_body(scope, receive)
            if answer is None:
                status = _CLIENT_LEFT
            else:
                await answer(scope, receive, numbered)
        finally:
            self._metrics.in_flight.dec()
            self._note(scope, request_id, status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """The answer to a request that is refused unread."""
        if not self._is_called_rightly(scope):
            return problem(400, "this server does not answer to that host or origin: use the address it printed.")
        if self._buckets is not None and (seconds := self._buckets.wait((scope["client"] or ("",))[0])):
            said = f"more than {self._limits.rate} requests a second: slow down."
            return problem(429, said, {"Retry-After": str(math.ceil(seconds))})
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > self._limits.max_body_bytes:
            return self._too_large()
        return None

    def _is_called_rightly(self, scope: Scope) -> bool:
        """Whether a request is to one of our names, and from no web page but ours."""
        if self._allowed_hosts is None:
            return True
        origin = _header(scope, b"origin")
        return _host_of(_header(scope, b"host")) in self._allowed_hosts and (
            not origin or _host_of(origin.partition("//")[2]) in self._allowed_hosts
        )

    async def _with_body(self, scope: Scope, receive: Receive) -> tuple[ASGIApp | None, Receive]:
        """Who answers, and where from it reads the body, which is here by then; None if the client has left."""
        if not _header(scope, b"content-length") and not _header(scope, b"transfer-encoding"):
            return self._app, receive
        body = bytearray()
        with anyio.move_on_after(self._limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None, receive
                body += message.get("body", b"")
                if len(body) > self._limits.max_body_bytes:  # a stream does not say its length beforehand
                    return self._too_large(), receive
                if not message.get("more_body", False):
                    return self._app, _replaying(bytes(body), receive)
        said = f"the body did not arrive within {self._limits.body_seconds:g} seconds: send it faster."
        return problem(408, said, {"Connection": "close"}), receive

    def _too_large(self) -> JSONResponse:
        said = f"the body is larger than {self._limits.max_body_bytes:,} bytes: send less at once."
        return problem(413, said, {"Connection": "close"})  # what is still under way is not read

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        # A path is what the client typed; its template is one of ours.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.count(method, route, status, seconds)
        if _LOG.isEnabledFor(logging.INFO):
            about = entries(
                method=method, route=route, status=status, ms=round(1000 * seconds, 3), request_id=request_id
            )
            _LOG.info("request", extra=about)


def problem(status: int, said: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An answer that says in one sentence what is wrong."""
    return JSONResponse({"detail": said}, status, headers)


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _host_of(host: str) -> str:
    """A host without its port and the brackets of IPv6."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Give out the body once, then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
