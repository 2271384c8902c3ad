"""A trained run, the real ``refactorgnn serve`` in a process of its own, and Debian's Chromium without a window."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import refactorgnn
from refactorgnn import Predictor, Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

TOKEN = "a-token-for-the-tests-of-the-page"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# No name but that of this machine means anything to the browser: what it does not get from here, it does not get.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
_PATIENCE_MS = 30_000


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two layers on the bundled graph, hardly trained; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "page"
    settings = {"model": "refactor", "layers": 2, "dim": 16, "epochs": 2, "alpha": 0.1, "validate_every": 1}
    return refactorgnn.train("countries_part", out=out, progress=False, **settings)


@pytest.fixture(scope="session")
def predictor(run: Run) -> Predictor:
    """The same model as the server's, in this process; not to be changed."""
    return Predictor.load(run)


@dataclass
class Served:
    """A server that runs: its address, and its process."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def serving(run: Run, *options: str) -> Iterator[Served]:
    """Run ``refactorgnn serve`` at a free port, and stop it as a person would."""
    environment = {**os.environ, "REFACTORGNN_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "refactorgnn", "serve", str(run.path), "--port", "0", *options]
    with tempfile.TemporaryFile("w+") as said:  # a pipe would be full some time, and the server wait for a reader
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT, text=True)
        try:
            yield Served(_address(process, said), process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _address(process: subprocess.Popen[str], said: IO[str]) -> str:
    """Where the server says it is."""
    deadline, text = time.monotonic() + 60, ""
    while time.monotonic() < deadline and process.poll() is None:
        said.seek(0)
        text = said.read()
        if found := re.search(r"served at (http://\S+?);", text):
            return found[1]
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"the server did not start:\n{text}")


@pytest.fixture(scope="session")
def server(run: Run) -> Iterator[Served]:
    """A server that takes new entities; tests that add some have one of their own."""
    with serving(run, "--allow-writes") as served:
        yield served


# Not of the session: as long as playwright runs, its event loop does, and other tests of ours begin their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("the page is tested in Chromium, which is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="the tests need playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """A browser's page, and what it asked the network for and complained about."""

    page: Page
    url: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, address: str = "/") -> Page:
        self.page.goto(self.url + address)
        self.page.get_by_role("heading", level=1).wait_for()
        self.page.wait_for_selector(".content:not([inert])")  # only a page that has its socket can be used
        return self.page

    @property
    def hosts(self) -> set[str | None]:
        return {urlsplit(url).hostname for url in self.requests if urlsplit(url).scheme not in ("data", "blob")}


@contextmanager
def visiting(context: BrowserContext, url: str) -> Iterator[Visitor]:
    """A visitor who leaves again; an error in the page's scripts fails the test."""
    context.set_default_timeout(_PATIENCE_MS)
    visitor = Visitor(context.new_page(), url)
    visitor.page.on("request", lambda request: visitor.requests.append(request.url))
    visitor.page.on("websocket", lambda socket: visitor.requests.append(socket.url))
    visitor.page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
    visitor.page.on(
        "console", lambda message: visitor.complaints.append(message.text) if message.type == "error" else None
    )
    yield visitor
    visitor.page.close()
    assert visitor.complaints == []


@pytest.fixture(scope="package")
def desktop_context(browser: Browser) -> BrowserContext:
    """A wide screen; its cache is shared, to save time."""
    return browser.new_context(viewport={"width": 1280, "height": 800})


@pytest.fixture(scope="package")
def phone_context(browser: Browser) -> BrowserContext:
    return browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)


@pytest.fixture
def desktop(desktop_context: BrowserContext, server: Served) -> Iterator[Visitor]:
    with visiting(desktop_context, server.url) as visitor:
        yield visitor


@pytest.fixture
def phone(phone_context: BrowserContext, server: Served) -> Iterator[Visitor]:
    with visiting(phone_context, server.url) as visitor:
        yield visitor


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go, to be looked at: ``REFACTORGNN_PICTURES`` if it is set."""
    folder = Path(os.environ.get("REFACTORGNN_PICTURES") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
