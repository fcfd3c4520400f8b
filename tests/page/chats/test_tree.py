"""A chat as a tree: edited questions and other answers are branches, and nothing is lost."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.page.browser import by, text_of, until
from tests.page.chats.test_chat import answers, press, questions
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page, wait_answer, wait_live

pytestmark = pytest.mark.browser
FIRST = "#messages li.user:nth-of-type(1)"


def arrow(driver: webdriver.Chrome, css: str, which: str) -> None:
    press(driver, f"{css} .versions .{which}")


def test_edited_questions_and_other_answers_are_branches(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    for text in ("first", "second"):
        script.engine.answer = f"about {text}"
        ask(chromium, text)
    assert not by(chromium, f"{LAST} .versions").is_displayed()  # a single answer has no arrows
    script.engine.answer = "another"
    press(chromium, f"{LAST} .again")
    until(lambda: answers(chromium) == ["about first", "another"], "the other answer")
    wait_answer(chromium)
    assert text_of(chromium, f"{LAST} .versions span") == "2/2"
    arrow(chromium, LAST, "back")
    assert answers(chromium) == ["about first", "about second"]
    focused = chromium.switch_to.active_element
    assert focused.accessible_name == "Next version of the answer"  # the only one that leads on
    press(chromium, f"{FIRST} .edit")
    script.engine.answer = "about the third"
    by(chromium, ".editor textarea").send_keys(Keys.CONTROL, "a", Keys.NULL, "third", Keys.ENTER)
    until(lambda: answers(chromium) == ["about the third"], "the branch")
    wait_answer(chromium)
    assert script.last_text == "user: third\nassistant: "
    arrow(chromium, FIRST, "back")
    assert questions(chromium) == ["first", "second"] and answers(chromium) == ["about first", "about second"]
    chromium.refresh()
    wait_live(chromium)
    assert answers(chromium) == ["about first", "about second"]  # the branch that was shown
    ask(chromium, "more")
    assert script.last_text.count("about second") == 1 and "another" not in script.last_text
    arrow(chromium, FIRST, "next")
    assert questions(chromium) == ["third"]
    arrow(chromium, FIRST, "back")
    assert questions(chromium) == ["first", "second", "more"]


@pytest.mark.daily
def test_a_chat_of_before_branches_goes_on(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    chromium.execute_script(
        """
        const turns = ["one", "two", "three"].map((text) => ({ question: text, answer: { text: `${text}!` } }));
        turns.splice(1, 0, { question: 5 });
        localStorage.setItem("twostroke-chat:old", JSON.stringify({ id: "old", at: 1, from: 0, turns }));
        sessionStorage.setItem("twostroke-open", "old");
        """
    )
    chromium.refresh()
    wait_live(chromium)
    assert questions(chromium) == ["one", "two", "three"]
    ask(chromium, "four")
    assert script.last_text.startswith("user: one\nassistant: one!\nuser: two\nassistant: two!\nuser: three\n")
