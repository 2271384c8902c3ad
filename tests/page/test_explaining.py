"""Explanations in a real browser: graph and list say what the predictor says, and add up to the score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from refactorgnn import Predictor
from refactorgnn.predict.explaining import Explanation
from tests.page.conftest import Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

TRIPLE = ("Portugal", "uses_currency", "Euro")
OPEN = "/?head=Portugal&relation=uses_currency&why=Euro"
CHART = "getElement(document.querySelector('.explanation-chart')).chart"


def contributions(page: Page) -> list[float]:
    """Of the rows of the list."""
    return page.eval_on_selector_all(".part", "rows => rows.map(row => Number(row.dataset.contribution))")


def nodes(page: Page) -> list[dict[str, Any]]:
    """Of the graph that is drawn."""
    page.wait_for_function(f"{CHART} !== undefined")
    return page.evaluate(f"{CHART}.getOption().series[0].data")


def parts(page: Page) -> list[float]:
    roles = ("fact", "others", "rest", "state", "features")
    return [node["contribution"] for node in nodes(page) if node["role"] in roles]


def wait_for_depth(page: Page, depth: int) -> None:
    page.wait_for_function(f"document.querySelectorAll('.parts:not(.without) tbody').length === {depth + 1}")


def assert_adds_up(page: Page, reasons: Explanation) -> None:
    assert sum(contributions(page)) == pytest.approx(reasons.score, abs=1e-3)
    assert sum(parts(page)) == pytest.approx(reasons.score, abs=1e-3)
    assert parts(page) == pytest.approx(contributions(page))
    assert page.locator(".parts tfoot .number").inner_text() == f"{reasons.score:.3f}"


def test_an_answer_is_explained_by_its_facts(desktop: Visitor, predictor: Predictor, pictures: Path) -> None:
    page = desktop.open("/?head=Portugal&relation=uses_currency")
    best = predictor.tails("Portugal", "uses_currency", 1, include_known=True, typed=True)[0].entity
    page.locator(".answer").first.click()
    wait_for_depth(page, 1)
    assert page.locator(".answer[aria-pressed=true] .answer-label").inner_text() == best
    assert parse_qs(urlsplit(page.url).query)["why"] == [best]
    reasons = predictor.explain("Portugal", "uses_currency", best)
    assert_adds_up(page, reasons)
    facts = {term.fact: term.contribution for term in reasons.by_head if term.fact is not None}
    drawn = {tuple(node["fact"]): node["contribution"] for node in nodes(page) if node.get("fact")}
    assert len(drawn) == 8  # the others are in one part
    assert set(drawn) == set(sorted(facts, key=lambda fact: -abs(facts[fact]))[:8])
    for fact, contribution in drawn.items():
        assert contribution == pytest.approx(facts[fact], rel=1e-3)
    page.screenshot(path=pictures / "desktop-explained.png", full_page=True)


def test_both_views_are_of_the_same_score(desktop: Visitor, predictor: Predictor) -> None:
    page = desktop.open(OPEN)
    wait_for_depth(page, 1)
    by_head = contributions(page)
    page.get_by_role("button", name="Euro", exact=True).click()
    page.wait_for_function("document.querySelector('.parts').ariaLabel === 'What made the state of Euro'")
    assert contributions(page) != by_head
    assert_adds_up(page, predictor.explain(*TRIPLE))


def test_the_earlier_state_is_split_by_a_click_in_the_graph(desktop: Visitor, predictor: Predictor) -> None:
    page = desktop.open(OPEN)
    wait_for_depth(page, 1)
    state = next(node for node in nodes(page) if node["role"] == "state")
    click_node(page, state)
    wait_for_depth(page, 2)
    reasons = predictor.explain(*TRIPLE, depth=2)
    assert_adds_up(page, reasons)
    (split,) = [node for node in nodes(page) if node["role"] == "split"]
    assert split["contribution"] == pytest.approx(state["contribution"], rel=1e-3)
    (features,) = [node for node in nodes(page) if node["role"] == "features"]
    expected = next(term.contribution for term in reasons.by_head if term.kind == "features")
    assert features["contribution"] == pytest.approx(expected, rel=1e-2, abs=1e-5)
    assert page.get_by_role("button", name="One layer deeper").count() == 0  # there are two


def test_a_fact_is_explained_by_a_click_in_the_graph_and_by_keyboard(desktop: Visitor, predictor: Predictor) -> None:
    page = desktop.open(OPEN)
    wait_for_depth(page, 1)
    node = next(node for node in nodes(page) if node["role"] == "fact")
    head, relation, tail = node["fact"]
    click_node(page, node)
    page.get_by_role("heading", name=f"Why {head} — {relation} — {tail}?").wait_for()
    assert_adds_up(page, predictor.explain(head, relation, tail))
    page.get_by_role("button", name="← Back").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Why Portugal — uses_currency — Euro?").wait_for()
    row = page.locator(".part button").first
    row.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Why {head} — {relation} — {tail}?").wait_for()


def test_a_node_can_be_dragged(desktop: Visitor) -> None:
    page = desktop.open(OPEN)
    wait_for_depth(page, 1)
    before, question = nodes(page), page.locator("h2.question").last.inner_text()
    page.wait_for_timeout(500)  # it grows into its place
    page.locator(".explanation-chart").scroll_into_view_if_needed()
    box = page.locator(".explanation-chart").bounding_box()
    assert box is not None
    x, y = page.evaluate(f"{CHART}.convertToPixel('grid', {before[0]['value']})")
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + x + 60, box["y"] + y + 20, steps=8)
    page.mouse.up()
    assert page.evaluate(f"{CHART}.getModel().getSeriesByIndex(0).getData().getItemLayout(0)") == pytest.approx(
        [x + 60, y + 20], abs=2
    )
    assert page.locator("h2.question").last.inner_text() == question  # a drag is no click


def test_facts_are_taken_away(desktop: Visitor, predictor: Predictor) -> None:
    page = desktop.open(OPEN)
    wait_for_depth(page, 1)
    page.get_by_role("button", name="Take facts away").click()
    page.wait_for_selector(".without")
    shown = page.eval_on_selector_all(
        ".without tbody tr", "rows => rows.map(row => [...row.children].map(cell => cell.innerText))"
    )
    expected = predictor.explain(*TRIPLE, num_counterfactuals=5)
    assert [row[0] for row in shown] == [" — ".join(one.fact) for one in expected.counterfactuals]
    assert [row[1] for row in shown] == [f"{one.score:.3f}" for one in expected.counterfactuals]
    assert [row[3] for row in shown] == [f"{one.tail_rank:g}" for one in expected.counterfactuals]


def click_node(page: Page, node: dict[str, Any]) -> None:
    """Click where the graph draws a node."""
    page.wait_for_timeout(500)  # it grows into its place
    page.locator(".explanation-chart").scroll_into_view_if_needed()
    x, y = page.evaluate(f"{CHART}.convertToPixel('grid', {node['value']})")
    page.locator(".explanation-chart canvas").first.click(position={"x": x, "y": y})
