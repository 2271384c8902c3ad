"""Running the application: the socket, uvicorn, and an end that leaves no request unanswered."""

from __future__ import annotations

import ipaddress
import math
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from refactorgnn.errors import UserError
from refactorgnn.server.logs import log_as_json

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has its place but does not listen yet; port 0 is any that is free."""
    if not 0 <= port < 2**16:
        raise UserError(f"port={port} cannot be used: choose 1 to 65535, or 0 for any that is free.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        place = socket.socket(family, socket.SOCK_STREAM)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
        return place
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise UserError(f"host {host!r}, port {port} cannot be used ({problem}): choose another one.") from error


def url_of(place: socket.socket) -> str:
    """Where a socket is reached."""
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def allowed_hosts(host: str) -> frozenset[str] | None:
    """The names a server answers to: on loopback those of this machine; elsewhere any, for it cannot know its own."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return _LOOPBACK_NAMES | {host} if is_loopback else None


def run_app(app: ASGIApp, listening: socket.socket, *, trusted_proxy: str | None, patience: float) -> bool:
    """Answer until SIGINT or SIGTERM, then finish what is under way; whether that could be done.

    Args:
        app: The application.
        listening: Where to answer.
        trusted_proxy: The address of a proxy whose ``X-Forwarded-For`` says who the client is.
        patience: Seconds that requests under way may still take.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=trusted_proxy is not None,
        forwarded_allow_ips=trusted_proxy,
        timeout_graceful_shutdown=patience,  # type: ignore[arg-type]  # it is given to asyncio, which takes fractions
        timeout_keep_alive=30,
    )
    log_as_json()
    server = _Server(config)
    server.run(sockets=[listening])
    return not server.force_exit and time.monotonic() - server.told_to_stop < patience


class _Server(uvicorn.Server):
    """Uvicorn's server raises the signal again when it has ended; that a server was told to stop is no failure."""

    told_to_stop = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; the second SIGINT does not wait."""
        self.told_to_stop = min(self.told_to_stop, time.monotonic())
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals while the server runs."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
