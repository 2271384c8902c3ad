"""Asking in a real browser: what is shown is what the predictor says, by mouse, keyboard and address."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from refactorgnn import Predictor, Run
from refactorgnn.page.elements import percent
from refactorgnn.predict.predictor import Answer
from tests.page.conftest import Served, Visitor, serving, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

FOCUSED = "document.activeElement"


def shown_answers(page: Page) -> list[dict[str, str | float]]:
    """What the list says, and how long its bars are drawn."""
    page.wait_for_selector(".answers .answer")
    return page.eval_on_selector_all(
        ".answers .answer",
        """rows => rows.map(row => ({
            label: row.querySelector('.answer-label').innerText,
            mark: row.querySelector('.mark').innerText,
            number: row.querySelector('.number').innerText,
            probability: Number(row.querySelector('.track').dataset.probability),
            drawn: row.querySelector('.bar').getBoundingClientRect().width,
            whole: row.querySelector('.track').getBoundingClientRect().width,
        }))""",
    )


def assert_same(shown: list[dict[str, str | float]], answers: list[Answer]) -> None:
    assert [row["label"] for row in shown] == [answer.label for answer in answers]
    for row, answer in zip(shown, answers, strict=True):
        assert answer.probability is not None
        assert row["probability"] == pytest.approx(answer.probability, rel=1e-4)
        assert row["number"] == percent(answer.probability)
        # A bar is as long as its probability, and never too short to be seen.
        assert row["drawn"] == pytest.approx(max(2, answer.probability * float(row["whole"])), abs=0.6)
        assert row["mark"] == {None: "new", "train": "known"}.get(answer.split, "known · held out")


def test_a_question_by_keyboard_alone(desktop: Visitor, predictor: Predictor) -> None:
    expected = ["Skip to main content", "refactorgnn", "Ask", "Add", "About", "Tail", "Head", "Relation", "Head"]
    page, order = desktop.open(), []
    assert page.locator("main").count() == 1  # one landmark to go to, not one in another
    for _ in expected:
        page.keyboard.press("Tab")
        order.append(page.evaluate(f"{FOCUSED}.innerText || {FOCUSED}.labels?.[0]?.innerText"))
    assert order == expected
    assert page.evaluate(f"getComputedStyle({FOCUSED}).outlineStyle") == "solid"  # one sees where one is
    head = page.get_by_role("combobox", name="Head")
    head.press_sequentially("portug")
    options = page.get_by_role("option")
    page.wait_for_function("document.querySelectorAll('[role=option]').length >= 2")
    names = [text.split("\n")[0] for text in options.all_inner_texts()]
    assert {"Portugal", "Portuguese"} <= set(names)
    while page.locator("[role=option][aria-selected=true] .option-label").inner_text() != "Portugal":
        page.keyboard.press("ArrowDown")
    active = page.locator("[role=option][aria-selected=true]").get_attribute("id")
    assert head.get_attribute("aria-activedescendant") == active
    page.keyboard.press("Enter")
    assert (head.input_value(), head.get_attribute("aria-expanded")) == ("Portugal", "false")
    page.keyboard.press("Tab")
    page.keyboard.type("uses_c")
    page.get_by_role("option", name="uses_currency").wait_for()
    page.keyboard.press("Enter")  # takes the suggestion
    page.keyboard.press("Enter")  # asks
    assert_same(shown_answers(page), predictor.tails("Portugal", "uses_currency", 10, include_known=True, typed=True))
    asked = parse_qs(urlsplit(page.url).query)
    assert asked == {"head": ["Portugal"], "relation": ["uses_currency"]}


def test_escape_closes_the_list_and_keeps_what_was_typed(desktop: Visitor) -> None:
    page = desktop.open()
    head = page.get_by_role("combobox", name="Head")
    head.press_sequentially("fran")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("Escape")
    assert page.get_by_role("option").count() == 0
    assert head.input_value() == "fran"
    head.press("ArrowDown")
    page.get_by_role("option").first.wait_for()


def test_enter_does_not_take_a_suggestion_for_what_was_typed_before(desktop: Visitor) -> None:
    page = desktop.open()
    head = page.get_by_role("combobox", name="Head")
    head.press_sequentially("Portu")
    page.wait_for_function("document.querySelector('[role=option].active')?.innerText.startsWith('Portuguese')")
    page.evaluate(  # faster than anybody types
        """field => {
            field.value = "Portugal";
            field.dispatchEvent(new Event("input", { bubbles: true }));
            field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
        }""",
        head.element_handle(),
    )
    assert page.get_by_role("alert").inner_text().startswith("The relation is empty")
    assert head.input_value() == "Portugal"


@pytest.mark.parametrize(
    ("address", "ask"),
    [
        ("?head=Poland&relation=borders&k=3&known=0", lambda p: p.tails("Poland", "borders", 3, typed=True)),
        (
            "?relation=speaks&tail=French&k=4&typed=0",
            lambda p: p.heads("speaks", "French", 4, include_known=True),
        ),
        (
            "?head=Lisbon&tail=Portugal&k=5",
            lambda p: p.relations("Lisbon", "Portugal", 5, include_known=True, typed=True),
        ),
    ],
    ids=["tails", "heads", "relations"],
)
def test_a_question_can_be_shared(desktop: Visitor, predictor: Predictor, address: str, ask: object) -> None:
    page = desktop.open("/" + address)
    assert_same(shown_answers(page), ask(predictor))  # type: ignore[operator]
    page.wait_for_function(f"location.search === {address!r}")  # asked again, it is the same address


def test_a_label_is_understood_and_the_form_shows_the_question(desktop: Visitor) -> None:
    page = desktop.open("/?relation=speaks&tail=French&k=4")
    shown_answers(page)
    assert page.get_by_role("combobox", name="Tail").input_value() == "French"
    assert not page.get_by_role("combobox", name="Head").is_visible()
    page.get_by_role("button", name="Relation", exact=True).click()  # which the server answers in its own time
    page.get_by_role("combobox", name="Head").wait_for()
    page.get_by_role("combobox", name="Relation").wait_for(state="hidden")


@pytest.mark.parametrize(
    ("address", "fragments"),
    [
        ("?head=Portugl&relation=borders", ["Unknown entity 'Portugl'", "'Portugal'"]),
        ("?head=Portugal&relation=border", ["Unknown relation 'border'", "'borders'"]),
        ("?head=Portugal", ["give two of head, relation and tail"]),
        ("?head=Portugal&relation=borders&k=many", ["asks for 'many' answers", "from 1 to 100"]),
        ("?head=Portugal&relation=borders&k=5000", ["5000 answers", "from 1 to 100"]),
    ],
)
def test_a_mistake_is_one_sentence(desktop: Visitor, address: str, fragments: list[str]) -> None:
    page = desktop.open("/" + address)
    said = page.get_by_role("alert").inner_text()
    for fragment in fragments:
        assert fragment in said
    assert "Traceback" not in page.content()


def test_an_empty_field_is_named(desktop: Visitor) -> None:
    page = desktop.open()
    page.get_by_role("combobox", name="Head").fill("Portugal")
    page.get_by_role("button", name="Ask", exact=True).click()
    assert page.get_by_role("alert").inner_text().startswith("The relation is empty")


def test_nothing_comes_from_elsewhere(browser: Browser, server: Served) -> None:
    with visiting(browser.new_context(), server.url) as visitor:  # which has nothing in its cache
        page = visitor.open("/?head=Portugal&relation=uses_currency&why=Euro")
        page.wait_for_selector(".explanation-chart canvas")
        page.wait_for_load_state("networkidle")
        assert len(visitor.requests) > 10
        assert visitor.hosts == {"127.0.0.1"}


@pytest.mark.parametrize("question", ["", "?head=Portugal&relation=uses_currency&why=Euro"], ids=["empty", "asked"])
def test_a_phone_shows_all_of_it(phone: Visitor, question: str, pictures: Path) -> None:
    page = phone.open("/" + question)
    if question:
        page.wait_for_selector(".explanation-chart canvas")
    width = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    assert page.evaluate(width) == 390
    outside = """[...document.querySelectorAll('main *')].filter(one => {
        const box = one.getBoundingClientRect();
        return box.width && (box.right > 390.5 || box.left < -0.5) && !one.closest('.only-heard');
    }).map(one => one.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []
    page.screenshot(path=pictures / f"phone-{'asked' if question else 'empty'}.png", full_page=True)


def test_a_phone_is_taken_to_the_answers_and_to_the_reasons(phone: Visitor) -> None:
    page = phone.open()
    page.get_by_role("combobox", name="Head").fill("Portugal")
    page.get_by_role("combobox", name="Relation").fill("speaks")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Ask", exact=True).tap()
    in_sight = (
        "name => { const { top } = document.querySelector(`section[aria-label=${name}]`).getBoundingClientRect();"
    )
    in_sight += " return top >= 50 && top < 0.8 * innerHeight; }"
    page.wait_for_selector(".answer")
    page.wait_for_function(in_sight, arg="Answers")
    page.locator(".answer").first.tap()
    page.wait_for_selector(".parts")
    page.wait_for_function(in_sight, arg="Explanation")


def test_without_writes_there_is_nothing_to_add(browser: Browser, run: Run) -> None:
    with serving(run) as served, visiting(browser.new_context(), served.url) as visitor:
        page = visitor.open()
        assert page.get_by_role("link", name="Add").count() == 0
        assert page.locator("#add").count() == 0
        served.process.send_signal(signal.SIGINT)  # an open page does not hold the server up
        assert served.process.wait(timeout=10) == 0
        page.close()
        visitor.complaints.clear()  # that the server is gone


def test_the_page_leaves_the_api_alone(desktop: Visitor, server: Served) -> None:
    api = desktop.page.context.request
    assert api.get(f"{server.url}/v1/nothing").json() == {
        "detail": "there is nothing at this path: see /docs for what there is."
    }
    assert api.get(f"{server.url}/v1/predict").status == 405
    page = api.get(server.url)
    assert (page.status, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
