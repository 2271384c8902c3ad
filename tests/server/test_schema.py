"""Requests made from the description, right and wrong: none makes the server fail, every answer is as described."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator

import hypothesis
import pytest
import requests
import schemathesis
import uvicorn
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from refactorgnn import Predictor, Run
from refactorgnn.server.app import Settings, create_app
from refactorgnn.server.limits import Limits
from refactorgnn.server.running import bound_socket, url_of
from refactorgnn.server.service import PredictorService
from tests.server.conftest import TOKEN

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
# What takes neither parameters nor a body cannot be asked wrongly.
CASES = [
    *((method, path, mode) for mode in (POSITIVE, NEGATIVE) for method, path in (
        ("post", "/v1/predict"), ("post", "/v1/predict/batch"), ("post", "/v1/explain"), ("post", "/v1/entities"),
        ("get", "/v1/entities"), ("get", "/v1/relations"),
    )),
    *(("get", path, POSITIVE) for path in ("/v1/about", "/health", "/metrics")),
]  # fmt: skip
_PATIENCE_S = 60.0  # an explanation on a busy machine takes its time
NUM_EXAMPLES = int(os.environ.get("REFACTORGNN_SCHEMA_EXAMPLES", "20"))


@pytest.fixture(scope="module")
def served(growing_run: Run) -> Iterator[tuple[schemathesis.BaseSchema, requests.Session, str]]:
    """A description, and a server that should be as it says, on a socket of its own."""
    service = PredictorService(Predictor.load(growing_run), allow_writes=True, token=TOKEN)
    app = create_app(service, Settings(Limits(rate=0)))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    with bound_socket("127.0.0.1", 0) as place, requests.Session() as session:
        place.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        yield schemathesis.openapi.from_dict(app.openapi()), session, url_of(place)
        server.should_exit = True
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_every_request_is_answered_as_described(
    served: tuple[schemathesis.BaseSchema, requests.Session, str], method: str, path: str, mode: GenerationMode
) -> None:
    description, session, url = served
    statuses: Counter[int] = Counter()

    @hypothesis.settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=description[path][method].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        answer = case.call(url, session, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=_PATIENCE_S)
        statuses[answer.status_code] += 1
        # This check knows what is right again once it is written down, such as a list of one text in a query string,
        # but not that what is wrong may be too large as well.
        checks = [*CHECKS, negative_data_rejection] if answer.status_code != 413 else CHECKS
        case.validate_response(answer, checks=checks)

    check()
    assert statuses.total() > 0
    assert max(statuses) < 500
    if mode is NEGATIVE:
        assert sum(count for status, count in statuses.items() if status >= 400) >= 0.95 * statuses.total(), statuses


def test_no_operation_is_left_out(served: tuple[schemathesis.BaseSchema, requests.Session, str]) -> None:
    described = [result.ok() for result in served[0].get_all_operations()]
    assert {(one.method, one.path) for one in described} == {(method, path) for method, path, _ in CASES}
