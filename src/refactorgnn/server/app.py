"""The application: routes behind the gate, one sentence for every mistake, and a description that states the limits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from refactorgnn.errors import NotFoundError, UserError
from refactorgnn.server import api_docs
from refactorgnn.server.gate import Gate, problem
from refactorgnn.server.limits import Limits
from refactorgnn.server.logs import entries
from refactorgnn.server.metrics import Metrics
from refactorgnn.server.routes import VERSION, Server, router
from refactorgnn.server.service import PredictorService
from refactorgnn.server.workers import TooBusyError, Workers

_LOG = logging.getLogger("refactorgnn.server")
# What pydantic adds to the place of a mistake where a name may be text or a number.
_ALTERNATIVES = ("constrained-str", "int")
_DESCRIPTION = "Answers from a trained knowledge-graph model: what follows, why, and what of entities never seen."


@dataclass(frozen=True)
class Settings:
    """How a server behaves.

    Args:
        limits: What it takes from its clients.
        workers: Threads that answer questions at the same time, with the one model.
        allowed_hosts: The names it answers to; None: any. See :class:`~refactorgnn.server.gate.Gate`.
    """

    limits: Limits = field(default_factory=Limits)
    workers: int = 2
    allowed_hosts: frozenset[str] | None = None


def create_app(service: PredictorService, settings: Settings | None = None) -> FastAPI:
    """The application that answers for a service."""
    settings = settings or Settings()
    server = Server(service, settings.limits, Workers(settings.workers, settings.limits.max_waiting), Metrics(service))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        server.workers.close()

    # Its own pages load scripts from a CDN: ours is in api_docs.
    app = FastAPI(
        title="refactorgnn", version=VERSION, description=_DESCRIPTION, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.state.server = server
    app.include_router(router)
    app.include_router(api_docs.router)
    app.add_middleware(Gate, limits=settings.limits, metrics=server.metrics, allowed_hosts=settings.allowed_hosts)
    _add_handlers(app)
    app.openapi = lambda: _described(app, settings.limits)  # type: ignore[method-assign]
    return app


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(NotFoundError)
    async def unknown(_: Request, error: NotFoundError) -> Response:
        return problem(404, str(error))

    @app.exception_handler(UserError)
    async def mistaken(_: Request, error: UserError) -> Response:
        return problem(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return problem(422, _sentence(error.errors()[0]))

    @app.exception_handler(TooBusyError)
    async def busy(_: Request, __: TooBusyError) -> Response:
        return problem(503, "too many requests are waiting: try again in a second.", {"Retry-After": "1"})

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        said = {
            400: "the body cannot be read: send JSON.",
            404: "there is nothing at this path: see /docs for what there is.",
            405: f"this path does not take {request.method}: see /docs for what it takes.",
        }
        return problem(error.status_code, said.get(error.status_code, error.detail), dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        request_id = request.scope.get("state", {}).get("request_id")
        _LOG.error("failure", exc_info=error, extra=entries(request_id=request_id))
        return problem(500, f"the server failed; its log says why, at request {request_id}.")


def _sentence(error: Any) -> str:
    """The first thing that is wrong with a request; what was sent is not repeated."""
    where = ".".join(str(part) for part in error["loc"][1:] if part not in _ALTERNATIVES)
    if error["type"] == "json_invalid":
        return "the body is no JSON: see /docs for an example."
    if error["type"] == "value_error":
        said = str(error["ctx"]["error"])
        return f"{where}: {said}" if where else said
    said = error["msg"][:1].lower() + error["msg"][1:]
    return f"{where or 'the request'}: {said}; see /docs."


def _described(app: FastAPI, limits: Limits) -> dict[str, Any]:
    """OpenAPI, with the limits of this server in it."""
    if app.openapi_schema:
        return app.openapi_schema
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = schema["components"]["schemas"]
    for name, entry, bound, most in (
        ("PredictRequest", "k", "maximum", limits.max_k),
        ("BatchRequest", "k", "maximum", limits.max_k),
        ("BatchRequest", "questions", "maxItems", limits.max_questions),
        ("ExplainRequest", "depth", "maximum", limits.max_depth),
        ("ExplainRequest", "num_counterfactuals", "maximum", limits.max_counterfactuals),
        ("AddRequest", "facts", "maxItems", limits.max_facts),
        ("AddRequest", "texts", "maxProperties", limits.max_facts),
    ):
        schemas[name]["properties"][entry][bound] = most
    for path in ("/v1/entities", "/v1/relations"):
        for parameter in schema["paths"][path]["get"]["parameters"]:
            if parameter["name"] == "limit":
                parameter["schema"]["maximum"] = limits.max_k
    app.openapi_schema = schema
    return schema
