"""The tokens of an answer: colours by probability, alternatives, and a branch from any of them."""

from __future__ import annotations

import re

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.page.browser import by, complaints, set_value, text_of, until
from tests.page.chats.test_chat import answers, press
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page, wait_answer, wait_live
from tests.serve.harness import Live

pytestmark = pytest.mark.browser
MARKS = f"{LAST} .marks .token"


def choices(driver: webdriver.Chrome) -> list[tuple[str, bool]]:
    """The tokens that were possible at the chosen token's place, and whether one can branch with each."""
    found = driver.find_elements("css selector", f"{LAST} .detail button")
    return [(each.text, each.is_enabled()) for each in found]


@pytest.mark.daily
def test_a_branch_from_a_token(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    ask(chromium, "first")
    press(chromium, f"{LAST} .show-tokens")
    until(lambda: chromium.find_elements("css selector", f"{LAST} .tokens-missing button"), "the offer to ask for them")
    press(chromium, f"{LAST} .tokens-missing button")
    wait_answer(chromium)
    assert script.last.params.logprobs == 5
    press(chromium, f"{LAST} .show-tokens")
    marks = until(lambda: chromium.find_elements("css selector", MARKS), "the tokens")
    assert "".join(each.text or " " for each in marks) == "hello world"
    assert not by(chromium, f"{LAST} .text").is_displayed()
    assert {each.get_attribute("class") for each in marks} == {"token level-p1"}  # exp(-0.5) is 61%
    assert "11 tokens, perplexity 1.65" in text_of(chromium, f"{LAST} .legend")
    ActionChains(chromium).move_to_element(marks[6]).perform()
    until(lambda: text_of(chromium, f"{LAST} .detail p") == "“w” had 60.7%. Branch with:", "what is known of it")
    assert choices(chromium) == [("“w” 60.7%", True), ("“x” 22.3%", True), ("“\ufffd” 8.2%", False),
                                 ("“\ufffd” 3.0%", False), ("“y” under 0.1%", True)]  # fmt: skip
    marks[0].send_keys(Keys.END, Keys.ARROW_LEFT)
    assert chromium.switch_to.active_element.accessible_name == "l, 60.7%"
    marks[6].click()
    script.engine.answer = "!"
    chromium.find_elements("css selector", f"{LAST} .detail button")[1].send_keys(Keys.ENTER)
    until(lambda: answers(chromium) == ["hello x!"], "the branch")
    wait_answer(chromium)
    assert script.last_text == "user: first\nassistant: hello x"
    assert text_of(chromium, f"{LAST} .versions span") == "3/3"
    chromium.refresh()
    wait_live(chromium)
    press(chromium, f"{LAST} .show-tokens")
    until(lambda: text_of(chromium, f"{LAST} .marks") == "hello x!", "its tokens, those of its beginning too")
    assert len(chromium.find_elements("css selector", MARKS)) == 8
    assert [each for each in complaints(chromium) if "/explain" not in each] == []


def test_tokens_are_those_of_the_answer_alone(chromium: webdriver.Chrome, thinking: Scripted) -> None:
    """These are neither the tokens of its reasoning nor its end. A character of several tokens is one place to branch
    from."""
    thinking.engine.answer = "<think>a cat.</think>a cat."
    open_page(chromium, thinking.live)
    chromium.execute_script("document.getElementById('setting-measures').click()")
    ask(chromium, "first", 200)
    press(chromium, f"{LAST} .show-tokens")
    until(lambda: text_of(chromium, f"{LAST} .marks") == "a cat.", "the tokens")
    split = """
      const done = arguments[0];
      const tokens = [[97], [0xc3], [0xa9, 98], [0xff], [99], [60, 62]];
      const heard = tokens.map((bytes) => ({ bytes, token: "?", logprob: -1, top_logprobs: [] }));
      import("/page/chat/tokens.js").then(({ kept }) => done(kept(heard, "begun aéb\\ufffdc", "begun ")), done);
    """
    found = [(each["text"], each["at"]) for each in chromium.execute_async_script(split)]
    assert found == [("a", 6), ("?", 7), ("?", None), ("?", 9), ("c", 10)]


@pytest.mark.daily
def test_the_real_engine_branches(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    set_value(chromium, "#setting-temperature", "0")
    chromium.execute_script("document.getElementById('setting-measures').click()")
    ask(chromium, "What is prefill?", 30)
    first = answers(chromium)[0]
    press(chromium, f"{LAST} .show-tokens")
    until(lambda: chromium.find_elements("css selector", MARKS), "the tokens")
    raw = chromium.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.replace('↵', '')).join('')", MARKS
    )
    assert raw.split() == first.split()
    place = 5
    press(chromium, f"{MARKS}:nth-child({place + 1})")
    others = chromium.find_elements("css selector", f"{LAST} .detail button:not(.own):not(:disabled)")
    other = next(each for each in others if re.match("“ ?[a-z]+”", each.text))  # a word without a mark of markdown
    beginning = chromium.execute_script(
        "return [...document.querySelectorAll(arguments[0])].slice(0, arguments[1]).map(e => e.textContent).join('')",
        MARKS, place,
    )  # fmt: skip
    word = other.text.split("”")[0].removeprefix("“")
    other.send_keys(Keys.ENTER)
    wait_answer(chromium)
    assert answers(chromium)[0].startswith((beginning + word).strip()[:20])
    assert "cached" in text_of(chromium, f"{LAST} .figures")  # the prompt and the beginning are not computed again
    assert complaints(chromium) == []
