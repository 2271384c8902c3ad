"""New entities in a real browser: checked while they are typed, added with the token only, answered about at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from refactorgnn import Predictor, Run
from refactorgnn.page.elements import percent
from tests.page.conftest import TOKEN, Served, Visitor, serving
from tests.page.test_asking import assert_same, shown_answers

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

ODD_NAME = "<img src=x onerror=window.harmed=1>"
FACTS = [
    ("Atlantis", "borders", "Portugal"),
    ("Atlantis", "in_continent", "Europe"),
    ("Atlantis", "speaks", "Portuguese"),
    (ODD_NAME, "borders", "France"),
]


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[Served]:
    """A server of its own, for it is changed."""
    with serving(run, "--allow-writes") as served:
        yield served


def paste(page: Page, facts: list[tuple[str, str, str]], separator: str = ", ") -> None:
    page.get_by_role("textbox", name="Facts").fill("\n".join(separator.join(fact) for fact in facts))


def add(page: Page, token: str) -> None:
    page.locator("#add input[type=password]").fill(token)
    page.keyboard.press("Enter")


def test_mistakes_are_named_by_their_line(desktop: Visitor) -> None:
    page = desktop.open()
    paste(page, [("Atlantis", "borders", "Portugal"), ("Atlantis", "speks", "Portuguese"), ("", "borders", "Spain")])
    page.wait_for_selector(".mistakes")
    assert page.locator(".mistakes li").all_inner_texts() == [
        "Line 2: relation 'speks' was not seen in training; did you mean 'speaks'?",
        "Line 3: the head is empty; fill it in or remove the line.",
    ]


def test_a_country_it_has_never_seen(desktop: Visitor, run: Run, pictures: Path) -> None:
    grown = Predictor.load(run)
    grown.add(FACTS)
    page = desktop.open()
    paste(page, FACTS, "\t")
    outcome = page.get_by_label("What is added")
    page.get_by_role("heading", name="This would add").wait_for()
    assert f"2: {ODD_NAME}, Atlantis" in outcome.inner_text()
    add(page, "another token, which is wrong")
    assert "not the token" in outcome.get_by_role("alert").inner_text()
    assert not is_known(desktop, "Atlantis")
    add(page, TOKEN)
    page.locator(".first-answers li").first.wait_for()
    assert is_known(desktop, "Atlantis")
    assert "Entities added here" not in page.locator("#about").inner_text()  # as it was when the page was opened
    page.screenshot(path=pictures / "desktop-added.png", full_page=True)
    assert page.get_by_role("heading", name="What it says of Atlantis").is_visible()
    assert_first_answer_opens(page, grown)
    assert_no_markup(desktop)
    page = desktop.open()
    assert "Entities added here\n2\nFacts added here\n4" in page.locator("#about").inner_text()


def is_known(visitor: Visitor, name: str) -> bool:
    """Whether the server, which all share, has an entity."""
    question = {"head": name, "relation": "borders"}
    return visitor.page.context.request.post(f"{visitor.url}/v1/predict", data=question).ok


def assert_first_answer_opens(page: Page, grown: Predictor) -> None:
    """The first answer is what the predictor says, and a click shows the question and the reasons."""
    first = page.locator(".first-answers li").first
    head, relation, tail = first.locator("button").inner_text().split(" — ")
    if head == "Atlantis":
        answers = grown.tails(head, relation, 10, include_known=True, typed=True)
    else:
        answers = grown.heads(relation, tail, 10, include_known=True, typed=True)
    chosen = next(answer for answer in answers if answer.label in {head, tail} - {"Atlantis"})
    assert chosen.probability is not None
    assert first.locator(".number").inner_text() == percent(chosen.probability)
    first.locator("button").click()
    page.wait_for_selector(".parts")
    assert_same(shown_answers(page), answers)
    reasons = grown.explain(head, relation, tail)
    contributions = page.eval_on_selector_all(".part", "rows => rows.map(row => Number(row.dataset.contribution))")
    assert sum(contributions) == pytest.approx(reasons.score, abs=1e-3)


def assert_no_markup(visitor: Visitor) -> None:
    """A name that a browser would run is shown as it is: in suggestions, answers, the list and the graph."""
    page = visitor.open("/?" + urlencode({"head": ODD_NAME, "relation": "borders", "why": "France"}))
    page.wait_for_selector(".explanation-chart canvas")
    page.wait_for_timeout(500)
    page.locator(".explanation-chart canvas").first.hover(position={"x": 174, "y": 30})
    assert ODD_NAME in page.locator("h2.question").first.inner_text()
    page.get_by_role("combobox", name="Head").fill("<img")
    page.get_by_role("option", name=ODD_NAME).wait_for()
    assert page.evaluate("window.harmed") is None
    assert page.locator("img[src=x]").count() == 0


def test_the_card_says_what_it_is(desktop: Visitor, run: Run) -> None:
    page = desktop.open()
    card = page.locator("#about").inner_text()
    assert "Dataset: countries_part" in card
    assert "CC BY 4.0" in card
    assert f"{len(run.graph.relations)}" in card
    best = next(record for record in run.records() if record["epoch"] == run.sidecar["best_epoch"])
    assert f"{best['valid_mrr']:.3f}" in card
    assert "All settings" in card
