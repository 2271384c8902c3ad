"""A trained run behind HTTP: :func:`serve`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import torch

from refactorgnn.errors import FileError, UserError
from refactorgnn.predict.predictor import Predictor
from refactorgnn.runs import Run
from refactorgnn.server.limits import Limits
from refactorgnn.server.service import PredictorService

TOKEN_VARIABLE = "REFACTORGNN_TOKEN"
_BACKLOG = 2048
_NEEDED = ("fastapi", "fastapi_swagger", "nicegui", "prometheus_client", "uvicorn")


def serve(
    run: str | Path | Run,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 2,
    allow_writes: bool = False,
    token: str | None = None,
    limits: Limits | None = None,
    trusted_proxy: str | None = None,
    patience: float = 30.0,
    device: str = "cpu",
    on_ready: Callable[[str, PredictorService], None] | None = None,
) -> bool:
    """Answer over HTTP until SIGINT or SIGTERM, and then finish what is under way; ``refactorgnn serve``.

    Args:
        run: The run, or its folder. It is loaded once, and shared by all threads.
        host: The address to listen at.
        port: The port; 0 is any that is free.
        workers: Threads that answer questions at the same time.
        allow_writes: Whether clients that show the token may add entities.
        token: The token; made up if there is none.
        limits: What is taken from clients.
        trusted_proxy: The address of a proxy whose ``X-Forwarded-For`` says who the client is.
        patience: Seconds that requests under way may take after the signal.
        device: Where to compute.
        on_ready: Called with the address and the service once the port is open.

    Returns:
        Whether all requests under way were answered.
    """
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            raise UserError(f"a server needs {package}, which is not installed: pip install 'refactorgnn[serve]'.")
    from refactorgnn.page import mount
    from refactorgnn.server.app import Settings, create_app
    from refactorgnn.server.running import allowed_hosts, bound_socket, run_app, url_of

    torch.set_num_threads(1)  # requests are parallel, not the products of one of them
    settings = Settings(limits or Limits(), workers, allowed_hosts(host))
    with bound_socket(host, port) as place:  # first, because a port that is taken should not cost the time of loading
        service = PredictorService(Predictor.load(run, device), allow_writes=allow_writes, token=token)
        app = create_app(service, settings)
        mount(app)
        place.listen(_BACKLOG)  # whoever is let in now will be answered
        if on_ready is not None:
            on_ready(url_of(place), service)
        return run_app(app, place, trusted_proxy=trusted_proxy, patience=patience)


def read_token(path: Path | None) -> str | None:
    """The token in a file, without the blanks and line ends around it; that of ``REFACTORGNN_TOKEN`` without a file."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, "the token cannot be read", "check the path and its permissions") from error
    if not token:
        raise FileError(path, "there is no token in it", "write one of 16 or more characters")
    return token
