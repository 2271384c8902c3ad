"""Logs as lines of JSON: what happened when, and to which request, but never who asked or what for."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any, TextIO

REQUESTS = "refactorgnn.server.requests"
_EXTRA = "entries"


class JsonFormatter(logging.Formatter):
    """A record as one line: time, level, event, and what the caller added with :func:`entries`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, _EXTRA, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def entries(**more: Any) -> dict[str, Any]:
    """What to give a logging call as ``extra``."""
    return {_EXTRA: more}


def log_as_json(stream: TextIO | None = None) -> None:
    """Send what the server and uvicorn have to say to a stream, standard output if not given, as lines of JSON."""
    handler = logging.StreamHandler(sys.stdout if stream is None else stream)
    handler.setFormatter(JsonFormatter())
    for name, level in (("refactorgnn.server", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
