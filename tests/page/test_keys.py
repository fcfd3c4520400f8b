"""Keys for everything: a chat works without a pointer."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.page.browser import by, complaints, text_of, until
from tests.page.chats.test_chat import answers, questions
from tests.page.scripted import Scripted
from tests.page.steps import LAST, open_page, wait_answer

pytestmark = pytest.mark.browser


def keys(driver: webdriver.Chrome, *pressed: str) -> None:
    """Sends keys to the element with the focus."""
    ActionChains(driver).send_keys(*pressed).perform()


def shown(driver: webdriver.Chrome, dialog: str) -> bool:
    return by(driver, f"#{dialog}").is_displayed()


def test_a_chat_is_led_by_keys_alone(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    by(chromium, "h1").click()
    keys(chromium, "?")
    until(lambda: shown(chromium, "keys"), "the list of keys")
    assert "Search in all chats" in text_of(chromium, "#keys-list") and "Ctrl+K" in text_of(chromium, "#keys-list")
    keys(chromium, "n", Keys.ESCAPE)
    keys(chromium, "/", "what now?", Keys.ENTER)  # in the field each key is text
    wait_answer(chromium)
    assert questions(chromium) == ["what now?"]
    script.engine.answer = "another"
    keys(chromium, Keys.ESCAPE, "r")
    until(lambda: answers(chromium) == ["another"], "another answer")
    wait_answer(chromium)
    keys(chromium, Keys.ESCAPE, "b")
    assert answers(chromium) == ["hello world"]
    keys(chromium, "f")
    assert answers(chromium) == ["another"]
    gate = script.hold()
    keys(chromium, "/", "stop me", Keys.ENTER)
    script.let(gate, 3)
    until(lambda: answers(chromium)[-1] == "ano", "a beginning")
    keys(chromium, Keys.ESCAPE)
    wait_answer(chromium)
    assert text_of(chromium, f"{LAST} .notice") == "You stopped this answer."
    script.engine.gate = None
    keys(chromium, Keys.ESCAPE, "e")
    assert by(chromium, ".editor textarea").get_attribute("value") == "stop me"
    keys(chromium, Keys.ESCAPE)
    for pressed, dialog in (("s", "chats"), ("v", "compare")):
        keys(chromium, pressed)
        until(lambda dialog=dialog: shown(chromium, dialog), dialog)
        keys(chromium, Keys.ESCAPE)
        until(lambda dialog=dialog: not shown(chromium, dialog), dialog)
    by(chromium, "#question").click()
    ActionChains(chromium).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
    until(lambda: shown(chromium, "chats"), "the search")
    assert chromium.switch_to.active_element.get_attribute("id") == "chats-search"
    keys(chromium, Keys.ESCAPE)
    assert [each for each in complaints(chromium) if "/explain" not in each] == []


@pytest.mark.daily
def test_single_keys_can_be_turned_off(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    by(chromium, "h1").click()
    keys(chromium, "?")
    until(lambda: shown(chromium, "keys"), "the list of keys")
    by(chromium, "#keys-single").click()
    keys(chromium, Keys.ESCAPE)
    until(lambda: not shown(chromium, "keys"), "it to close")
    by(chromium, "h1").click()
    keys(chromium, "?", "s")
    assert not shown(chromium, "keys") and not shown(chromium, "chats")
