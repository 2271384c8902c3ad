"""Who may write: those that show the token, where writes are allowed at all."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from refactorgnn.server.service import WRITES_OFF, PredictorService

_BEARER = HTTPBearer(auto_error=False, description="The token that was given to the server, or that it printed.")


def check_writer(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
) -> None:
    """Refuse a request that may not write: 403 where nobody may, 401 without the right token."""
    service: PredictorService = request.app.state.server.service
    if not service.allow_writes:
        raise HTTPException(403, WRITES_OFF)
    if credentials is None or not service.is_token(credentials.credentials):
        said = "the token is missing or wrong: send the header 'Authorization: Bearer TOKEN'."
        raise HTTPException(401, said, {"WWW-Authenticate": "Bearer"})
