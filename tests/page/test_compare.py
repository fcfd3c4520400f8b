"""Two answers to one question next to each other, and where they part."""

from __future__ import annotations

import pytest
from selenium import webdriver

from tests.page.browser import by, complaints, resize, set_value, text_of, until
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page
from tests.page.test_chat import answers, press, questions
from tests.page.test_layout import CUT, too_wide
from tests.serve.harness import Live

pytestmark = pytest.mark.browser
SAID = "#compare-said"


def compare(driver: webdriver.Chrome) -> str:
    """Ask both; what the page says of the two."""
    press(driver, "#compare-ask")
    until(lambda: text_of(driver, SAID) and text_of(driver, "#compare-ask") == "Ask both", "both answers")
    return text_of(driver, SAID)


def test_equal_settings_give_equal_bits_and_others_part(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    ask(chromium, "What is prefill?", 24)
    press(chromium, "#compare-open")
    assert by(chromium, "#compare-question").get_attribute("value") == "What is prefill?"
    set_value(chromium, "#compare-seed", "7")
    assert compare(chromium) == "Equal bits: the same 24 tokens with the same probabilities."
    assert chromium.execute_script(
        "return [...document.querySelectorAll('#compare-sides .figures')].every((e) => e.textContent.endsWith('seed 7'))"
    )
    set_value(chromium, "#compare-sides section:nth-child(2) label:nth-child(2) input", "2")
    assert compare(chromium).startswith("They part at token ")
    for width in (390, 1440):
        resize(chromium, width, 844)
        assert too_wide(chromium) == [] and chromium.execute_script(CUT) == []
    texts = chromium.execute_script(
        "return [...document.querySelectorAll('#compare-sides .text')].map((each) => each.textContent)"
    )
    press(chromium, "#compare-keep")
    assert text_of(chromium, f"{LAST} .versions span") == "3/3" and answers(chromium) == [texts[1]]
    press(chromium, f"{LAST} .versions .back")
    assert answers(chromium) == [texts[0]] and questions(chromium) == ["What is prefill?"]
    assert complaints(chromium) == []


def test_both_are_asked_after_the_chat_with_one_seed(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    ask(chromium, "first")
    by(chromium, "#question").send_keys("second")
    press(chromium, "#compare-open")
    assert "after the 1 turn before it" in text_of(chromium, "#compare-place")
    set_value(chromium, "#compare-sides section:nth-child(1) label:nth-child(2) input", "0.25")
    assert compare(chromium).startswith("Equal bits")
    left, right = script.engine.prompts[-2:]
    assert bytes(left.token_ids) == bytes(right.token_ids) == (
        b"user: first\nassistant: hello world\nuser: second\nassistant: "
    )
    assert left.params.seed == right.params.seed
    assert {left.params.temperature, right.params.temperature} == {0.25, script.engine.prompts[0].params.temperature}
