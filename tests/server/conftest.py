"""A run that can grow and be explained, its service, and a client of the whole application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import refactorgnn
from refactorgnn import Predictor, Run
from refactorgnn.server.app import Settings, create_app
from refactorgnn.server.service import PredictorService

TOKEN = "a-token-of-no-secret"


@pytest.fixture(scope="session")
def growing_run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A ReFactor GNN of two layers, trained on ``tiny``; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "growing"
    settings = {"model": "refactor", "layers": 2, "features": "signature+random", "dim": 8, "epochs": 2}
    return refactorgnn.train(tiny, out=out, progress=False, validate_every=1, **settings)


@pytest.fixture
def service(growing_run: Run) -> PredictorService:
    return PredictorService(Predictor.load(growing_run), allow_writes=True, token=TOKEN)


MakeClient = Callable[..., TestClient]


@pytest.fixture
def client_of() -> Iterator[MakeClient]:
    """Make a client of a service; unexpected errors become answers with status 500, as for clients elsewhere."""
    clients: list[TestClient] = []

    def make(service: PredictorService, settings: Settings | None = None) -> TestClient:
        client = TestClient(create_app(service, settings), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(service: PredictorService, client_of: MakeClient) -> TestClient:
    return client_of(service)
