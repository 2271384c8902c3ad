"""Suggestions that are found late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the page needs the extra `serve`")


def test_a_late_answer_does_not_replace_the_one_to_what_was_typed_last() -> None:
    from refactorgnn.page.combobox import Combobox

    field = object.__new__(Combobox)
    field._props, field._latest, field._search = {}, "", lambda text, limit: []
    field.update = lambda: None

    class Workers:
        async def quick(self, function: Callable[[], Any]) -> Any:
            await asyncio.sleep(0.02 if field._latest == "fra" else 0)
            return function()

    field._workers = Workers()

    async def type_quickly() -> None:
        await asyncio.gather(*(field._suggest(SimpleNamespace(args=text)) for text in ("fra", "fran")))

    with ThreadPoolExecutor(1) as thread:  # in this one the browser of the other tests has its loop
        thread.submit(lambda: asyncio.run(type_quickly())).result()
    assert field._props["answered"] == "fran"
