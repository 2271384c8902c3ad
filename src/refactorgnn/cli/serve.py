"""``refactorgnn serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refactorgnn import api
from refactorgnn.api.serving import TOKEN_VARIABLE, read_token
from refactorgnn.cli.model import Device
from refactorgnn.cli.output import say
from refactorgnn.errors import UserError
from refactorgnn.server.limits import Limits
from refactorgnn.server.service import PredictorService

_DEFAULT = Limits()


def serve(
    run: Annotated[Path, typer.Argument(help="A run folder made by train.")],
    host: Annotated[str, typer.Option(help="The address to listen at; others than loopback let others in.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0: any that is free, which is then printed.")] = 8000,
    workers: Annotated[
        int, typer.Option(help="Threads that answer questions at the same time, with one copy of the model.")
    ] = 2,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let clients that show the token add entities.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the token of --allow-writes (or set {TOKEN_VARIABLE}).", show_default="made up, printed"
        ),
    ] = None,
    rate: Annotated[int, typer.Option(help="Requests of a client in a second; 0: no limit.")] = _DEFAULT.rate,
    max_k: Annotated[int, typer.Option(help="The most answers to a question.")] = _DEFAULT.max_k,
    max_questions: Annotated[int, typer.Option(help="The most questions in a batch.")] = _DEFAULT.max_questions,
    max_body_kb: Annotated[int, typer.Option(help="The largest request, in KiB.")] = _DEFAULT.max_body_bytes // 1024,
    trusted_proxy: Annotated[
        str | None,
        typer.Option(help="The address of a proxy whose X-Forwarded-For says who the client is.", show_default=False),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds that requests under way may take when told to stop.")] = 30,
    device: Device = "cpu",
) -> None:
    """Answer over HTTP: predictions, explanations, new entities; /docs describes all of it.

    One line of JSON for each request goes to standard output. Stop it with Ctrl-C or SIGTERM.

    Example: refactorgnn serve runs/countries --port 8000
    """
    if token_file is not None and not allow_writes:
        raise UserError("--token-file has nothing to protect: add --allow-writes, or leave it out.")
    limits = Limits(max_body_bytes=1024 * max_body_kb, max_k=max_k, max_questions=max_questions, rate=rate)
    token = read_token(token_file) if allow_writes else None

    def announce(url: str, service: PredictorService) -> None:
        if allow_writes and token is None:
            say(f"The token for adding entities, shown this once: {service.token}")
        say(f"{service.predictor.graph.name!r} is served at {url}; the API is described at {url}/docs.")

    finished = api.serve(
        run,
        host=host,
        port=port,
        workers=workers,
        allow_writes=allow_writes,
        token=token,
        limits=limits,
        trusted_proxy=trusted_proxy,
        patience=patience,
        device=device,
        on_ready=announce,
    )
    if not finished:
        say("stopped: some requests under way were cut off; --patience gives them more time.")
        raise typer.Exit(1)
    say("stopped: all requests under way were answered.")
