"""The page that people use: ask, see why, add entities, read the card; in the server that ``refactorgnn serve`` starts.

NiceGUI draws it, with assets of its own: nothing is fetched from anywhere but this server. A visitor's page holds one
question, its answers and one explanation, cut to what is shown; all else is the service's, which visitors share. What
takes time runs in threads.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from refactorgnn.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from refactorgnn.server.service import PredictorService


def mount(app: FastAPI, service: PredictorService) -> None:
    """Put the page at ``/`` of an application, behind the routes that it has already.

    NiceGUI has one application in a process, so this can be done once in a process.

    Args:
        app: The application.
        service: What answers.
    """
    if find_spec("nicegui") is None:
        raise UserError("the page needs NiceGUI, which is not installed: pip install 'refactorgnn[serve]'.")
    from refactorgnn.page.visit import mount_visits

    mount_visits(app, service)
