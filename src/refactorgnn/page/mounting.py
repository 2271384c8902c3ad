"""How the page gets into an application: NiceGUI behind the routes of the API, and closed to other sites."""

from __future__ import annotations

import warnings
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from nicegui import ui
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from refactorgnn.page.visit import ICON, Visit
from refactorgnn.server.routes import Server

# What NiceGUI answers at, beside the page itself: its files, and the socket by which a page talks to the server.
_FILES, _SOCKET = "/_nicegui/", "/_nicegui_ws/"
# Messages kept for a browser that lost its connection for a moment.
_MOST_MESSAGES_KEPT = 100


def mount_page(app: FastAPI) -> None:
    """See :func:`refactorgnn.page.mount`."""
    server: Server = app.state.server

    @ui.page("/", title=f"refactorgnn · {server.service.predictor.graph.name}")
    async def page(request: Request) -> None:
        visit = Visit(server.service, server.workers)
        visit.build()
        await ui.context.client.connected()
        await visit.arrive(dict(request.query_params))

    # NiceGUI looks for its server among all objects there are, some of which warn when they are looked at.
    warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op", category=FutureWarning)
    ui.run_with(
        app,
        favicon=ICON,
        dark=False,
        language="en-GB",
        tailwind=False,
        binding_refresh_interval=None,
        message_history_length=_MOST_MESSAGES_KEPT,
        show_welcome_message=False,
    )
    everything = app.router.routes.pop()
    assert isinstance(everything, Mount), "run_with mounts NiceGUI last"
    app.router.routes.append(_OnlyThePage("/", everything.app))
    app.add_middleware(OwnSocketOnly)


class _OnlyThePage(Mount):
    """NiceGUI at its own paths only: at ``/`` it would also answer for what the API refuses, and in HTML."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        if path == "/" or path.startswith((_FILES, _SOCKET)):
            return super().matches(scope)
        return Match.NONE, {}


class OwnSocketOnly:
    """Refuses the page's socket to pages of other sites, which a browser would let use it.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a connection through, or refuse it."""
        if scope.get("path", "").startswith(_SOCKET) and not _is_own(scope):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)


def _is_own(scope: Scope) -> bool:
    """Whether a request comes from a page of this server; browsers say which page, other clients need not."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    return origin is None or urlsplit(origin.decode("latin-1")).netloc == headers.get(b"host", b"").decode("latin-1")
