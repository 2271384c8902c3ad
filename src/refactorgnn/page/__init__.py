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


def mount(app: FastAPI) -> None:
    """Put the page at ``/`` of an application that :func:`~refactorgnn.server.app.create_app` made.

    NiceGUI has one application in a process, so this can be done once in a process.

    Args:
        app: The application; its service answers, in its threads.
    """
    if find_spec("nicegui") is None:
        raise UserError("the page needs nicegui, which is not installed: pip install 'refactorgnn[serve]'.")
    from refactorgnn.page.mounting import mount_page

    mount_page(app)
