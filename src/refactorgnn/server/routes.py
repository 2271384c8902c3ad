"""The routes: each checks the limits, asks the service in a thread, and answers with JSON."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from refactorgnn.predict.predictor import Answer, Predictor, Question
from refactorgnn.server import metrics as prometheus
from refactorgnn.server.access import check_writer
from refactorgnn.server.limits import Limits
from refactorgnn.server.metrics import Metrics
from refactorgnn.server.models import (
    About,
    AddedOut,
    AddRequest,
    Answers,
    BatchAnswers,
    BatchRequest,
    ExplainRequest,
    ExplanationOut,
    Health,
    PredictRequest,
    Problem,
    Search,
    SearchRequest,
)
from refactorgnn.server.name_search import Found
from refactorgnn.server.service import PredictorService
from refactorgnn.server.workers import Workers

VERSION = metadata.version("refactorgnn")
_ANY = {400: "The request cannot be read.", 429: "Too many requests in a second.", 503: "Too many requests at once."}
_BODY = {
    404: "No such entity or relation; the closest names are told.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The request is not as described, or goes beyond a limit.",
}
_WRITE = {401: "The token is missing or wrong.", 403: "Writes are off."}
# Scores of candidates that the event loop computes itself.
_TINY = 5000

router = APIRouter()


@dataclass(frozen=True)
class Server:
    """What the routes share, as ``app.state.server``."""

    service: PredictorService
    limits: Limits
    workers: Workers
    metrics: Metrics


def _problems(*tables: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    merged = {status: said for table in (_ANY, *tables) for status, said in table.items()}
    return {status: {"model": Problem, "description": said} for status, said in sorted(merged.items())}


@router.post("/v1/predict", response_model=Answers, responses=_problems(_BODY), tags=["ask"])
async def predict(request: Request, asked: PredictRequest) -> Response:
    """The best answers to one question: give two of head, relation and tail."""
    found = await _answer(request, [asked.question()], asked.k, asked.include_known, asked.typed)
    return JSONResponse({"answers": found[0]})


@router.post("/v1/predict/batch", response_model=BatchAnswers, responses=_problems(_BODY), tags=["ask"])
async def predict_batch(request: Request, asked: BatchRequest) -> Response:
    """The best answers to many questions, in one product; a name that is not known refuses them all."""
    _check_at_most("questions", len(asked.questions), _server(request).limits.max_questions)
    questions = [one.question() for one in asked.questions]
    found = await _answer(request, questions, asked.k, asked.include_known, asked.typed)
    return JSONResponse({"results": [{"answers": answers} for answers in found]})


@router.post("/v1/explain", response_model=ExplanationOut, responses=_problems(_BODY), tags=["ask"])
async def explain(request: Request, asked: ExplainRequest) -> Response:
    """Why a triple has its score: which facts, how much each; and what becomes of it without some of them."""
    server = _server(request)
    _check_at_most("depth", asked.depth, server.limits.max_depth)
    _check_at_most("num_counterfactuals", asked.num_counterfactuals, server.limits.max_counterfactuals)
    predictor = server.service.predictor
    reasons = await server.workers.slow(
        lambda: predictor.explain(
            asked.head, asked.relation, asked.tail, depth=asked.depth, num_counterfactuals=asked.num_counterfactuals
        ).to_dict()
    )
    return JSONResponse(reasons)


@router.get("/v1/entities", response_model=Search, responses=_problems({422: _BODY[422]}), tags=["look up"])
async def search_entities(request: Request, asked: Annotated[SearchRequest, Query()]) -> Response:
    """Entities by what is typed of their name or label."""
    server = _server(request)
    _check_at_most("limit", asked.limit, server.limits.max_k)
    return _names(await server.workers.quick(lambda: server.service.search_entities(asked.text, asked.limit)))


@router.get("/v1/relations", response_model=Search, responses=_problems({422: _BODY[422]}), tags=["look up"])
async def search_relations(request: Request, asked: Annotated[SearchRequest, Query()]) -> Response:
    """Relations by what is typed of their name."""
    server = _server(request)
    _check_at_most("limit", asked.limit, server.limits.max_k)
    return _names(await server.workers.quick(lambda: server.service.search_relations(asked.text, asked.limit)))


@router.post(
    "/v1/entities",
    status_code=201,
    response_model=AddedOut,
    responses=_problems({code: said for code, said in _BODY.items() if code != 404}, _WRITE),
    dependencies=[Depends(check_writer)],
    tags=["add"],
)
async def add_entities(request: Request, given: AddRequest) -> Response:
    """Put entities never seen in, without training; wholly, or not at all. Needs ``--allow-writes`` and the token."""
    server = _server(request)
    _check_at_most("facts", len(given.facts), server.limits.max_facts)
    _check_at_most("texts", len(given.texts), server.limits.max_facts)
    facts = [(head, relation, tail) for head, relation, tail in given.facts]
    texts = {name: (text.label, text.description) for name, text in given.texts.items()}
    added = await server.workers.slow(lambda: server.service.add(facts, texts, given.mode))
    server.metrics.additions.inc()
    return JSONResponse(vars(added), 201)


@router.get("/v1/about", response_model=About, responses=_problems(), tags=["look up"])
async def about(request: Request) -> Response:
    """The card of dataset and model: sizes, settings, validation metrics, calibration."""
    return JSONResponse(_server(request).service.about())


@router.get("/health", response_model=Health, responses=_problems(), tags=["run"])
async def health(request: Request) -> Response:
    """Live and ready: the model is loaded before the port is opened, so a server that answers is ready."""
    num_entities = _server(request).service.predictor.graph.num_entities
    return JSONResponse({"status": "ready", "version": VERSION, "num_entities": num_entities})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format."}, **_problems()},
    tags=["run"],
)
async def metrics(request: Request) -> Response:
    """Counters and times for Prometheus."""
    return Response(_server(request).metrics.render(), media_type=prometheus.MEDIA_TYPE)


async def _answer(
    request: Request, questions: list[Question], k: int, include_known: bool, typed: bool
) -> list[list[dict[str, Any]]]:
    server = _server(request)
    _check_at_most("k", k, server.limits.max_k)
    predictor = server.service.predictor

    def work() -> list[list[Answer]]:
        return predictor.answer(questions, k, include_known=include_known, typed=typed)

    found = work() if _is_tiny(predictor, questions) else await server.workers.quick(work)
    server.metrics.questions.inc(len(questions))
    return [[vars(answer) for answer in answers] for answers in found]


def _is_tiny(predictor: Predictor, questions: list[Question]) -> bool:
    """Whether questions take a millisecond or so: then two changes of threads would take longer than they save.

    A name that is none of the entities' is not tiny: it may be a label, or unknown, and is then searched for.
    """
    graph = predictor.graph
    rows = [graph.num_relations if question.relation is None else 1 for question in questions]
    return sum(rows) * graph.num_entities <= _TINY and all(
        name is None or isinstance(name, int) or name in names
        for question in questions
        for name, names in (
            (question.head, graph.entities),
            (question.relation, graph.relations),
            (question.tail, graph.entities),
        )
    )


def _names(found: list[Found]) -> Response:
    return JSONResponse({"found": [vars(one) for one in found]})


def _check_at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise HTTPException(422, f"{name}: this server takes at most {most:,}, not {value:,}.")


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server
