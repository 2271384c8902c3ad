"""How the page gets into an application: NiceGUI behind the routes of the API, at its own paths only."""

from __future__ import annotations

import warnings

from fastapi import FastAPI, Request
from nicegui import ui
from starlette.routing import Match, Mount
from starlette.types import Scope

from refactorgnn.page.visit import ICON, Visit
from refactorgnn.server.routes import Server

# What NiceGUI answers at, beside the page itself: its files, and the socket by which a page talks to the server.
_FILES, _SOCKET = "/_nicegui/", "/_nicegui_ws/"
# Messages kept for a browser that lost its connection for a moment.
_MOST_MESSAGES_KEPT = 100
# How long a browser may take to fetch the files and open the socket.
_PATIENCE_SECONDS = 60.0


def mount_page(app: FastAPI) -> None:
    """See :func:`refactorgnn.page.mount`."""
    server: Server = app.state.server

    @ui.page("/", title=f"refactorgnn · {server.service.predictor.graph.name}")
    async def page(request: Request) -> None:
        visit = Visit(server.service, server.workers)
        visit.build()
        await ui.context.client.connected(timeout=_PATIENCE_SECONDS)
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


class _OnlyThePage(Mount):
    """NiceGUI at its own paths only: at ``/`` it would also answer for what the API refuses, and in HTML."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        if path == "/" or path.startswith((_FILES, _SOCKET)):
            return super().matches(scope)
        return Match.NONE, {}
