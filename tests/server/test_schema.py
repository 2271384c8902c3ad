"""Requests made from the description, right and wrong ones: none makes the server fail, every answer is as described."""

from __future__ import annotations

import os

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from refactorgnn import Predictor, Run
from refactorgnn.server.app import Settings, create_app
from refactorgnn.server.limits import Limits
from refactorgnn.server.service import PredictorService
from tests.server.conftest import TOKEN

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
NUM_EXAMPLES = int(os.environ.get("REFACTORGNN_SCHEMA_EXAMPLES", "40"))


@pytest.fixture(scope="module")
def description(growing_run: Run) -> schemathesis.BaseSchema:
    service = PredictorService(Predictor.load(growing_run), allow_writes=True, token=TOKEN)
    app = create_app(service, Settings(Limits(rate=0)))
    return schemathesis.openapi.from_asgi("/openapi.json", app)
