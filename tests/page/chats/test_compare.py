"""Two answers to one question next to each other, and the place where they first differ."""

from __future__ import annotations

import pytest
from selenium import webdriver

from tests.page.browser import by, complaints, resize, set_value, text_of, until
from tests.page.chats.test_chat import answers, press, questions
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page
from tests.page.test_layout import CUT, too_wide
from tests.serve.harness import Live

pytestmark = pytest.mark.browser
SAID = "#compare-said"


def compare(driver: webdriver.Chrome) -> str:
    """Asks both. Returns what the page writes about the two."""
    press(driver, "#compare-ask")
    until(lambda: text_of(driver, SAID) and text_of(driver, "#compare-ask") == "Ask both", "both answers")
    return text_of(driver, SAID)


def side_texts(driver: webdriver.Chrome, css: str) -> list[str]:
    """The text of an element of each side."""
    script = "return [...document.querySelectorAll(`#compare-sides ${arguments[0]}`)].map((each) => each.textContent)"
    found: list[str] = driver.execute_script(script, css)
    return found


def test_equal_settings_give_equal_bits(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    ask(chromium, "What is prefill?", 24)
    press(chromium, "#compare-open")
    assert by(chromium, "#compare-question").get_attribute("value") == "What is prefill?"
    set_value(chromium, "#compare-seed", "7")
    assert compare(chromium).startswith("Equal bits: the same ")
    assert [told[-7:] for told in side_texts(chromium, ".figures")] == [" seed 7", " seed 7"]
    for width in (390, 1440):
        resize(chromium, width, 844)
        assert too_wide(chromium) == [] and chromium.execute_script(CUT) == []
    texts = side_texts(chromium, ".text")
    press(chromium, "#compare-keep")
    assert text_of(chromium, f"{LAST} .versions span") == "3/3" and answers(chromium) == [texts[1]]
    press(chromium, f"{LAST} .versions .back")
    assert answers(chromium) == [texts[0]] and questions(chromium) == ["What is prefill?"]
    assert complaints(chromium) == []


@pytest.mark.daily
def test_where_two_answers_part_is_said(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    script_of_verdict = """
      const done = arguments[1];
      const made = (logprob) => (sign) => ({ token: sign, bytes: [sign.charCodeAt(0)], logprob });
      const tokens = (text, logprob) => [...text].map(made(logprob));
      import("/page/chat/compare.js").then(({ verdict }) =>
        done(arguments[0].map(([[a, p], [b, q]]) => verdict(tokens(a, p), tokens(b, q)))), done);
    """
    cases = [[("abc", -1), ("abc", -1)], [("abc", -1), ("abc", -1.5)], [("abc", -1), ("axc", -1)],
             [("ab", -1), ("abc", -1)], [("abc", -1), ("ab", -1)]]  # fmt: skip
    assert chromium.execute_async_script(script_of_verdict, cases) == [
        "Equal bits: the same 3 tokens with the same probabilities.",
        "The same 3 tokens; the probabilities differ from token 1 on.",
        "They part at token 2: “b” on the left, “x” on the right.",
        "They part at token 3: the end on the left, “c” on the right.",
        "They part at token 3: “c” on the left, the end on the right.",
    ]


@pytest.mark.daily
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
