"""Take docs/images/page.png again: the page at a question about a country that the model has never seen.

make demo
apt-get install chromium
.venv/bin/python scripts/picture_page.py .demo/unseen
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

from refactorgnn.demo import ATLANTIS

ROOT = Path(__file__).parent.parent
QUESTION = {"head": "Atlantis", "relation": "in_region", "k": "8", "why": "Southern Europe"}
SIZE = {"width": 1280, "height": 1000}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder, such as .demo/unseen")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "page.png", help="where to put it")
    arguments = parser.parse_args()
    token = secrets.token_urlsafe()
    command = [sys.executable, "-m", "refactorgnn", "serve", str(arguments.run), "--port", "0", "--allow-writes"]
    environment = {**os.environ, "REFACTORGNN_TOKEN": token}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = next(found[1] for line in server.stderr if (found := re.search(r"served at (http://\S+?);", line)))
        _take(url, token, arguments.out)
    finally:
        server.terminate()
        server.wait()
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


def _take(url: str, token: str, out: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.goto(url)
        page.wait_for_selector("main:not([inert])")
        page.get_by_role("textbox", name="Facts").fill("\n".join(", ".join(fact) for fact in ATLANTIS))
        page.locator("#add input[type=password]").fill(token)
        page.keyboard.press("Enter")
        page.locator(".first-answers").wait_for()
        page.goto(f"{url}/?{urlencode(QUESTION)}")
        page.locator(".explanation-chart canvas").wait_for()
        page.wait_for_timeout(1500)  # the graph grows into its place
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main()
