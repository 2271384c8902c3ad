"""The page of results says what the records say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_is_made_of_the_records() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "results_table.py"))
    assert (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8") == script["page"]()


def test_the_table_of_the_readme_is_made_of_the_records() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "readme_results.py"))
    assert (ROOT / "README.md").read_text(encoding="utf-8") == script["readme"]()
