"""Chats that outlive the page: they are kept in this browser, bounded, and can be deleted."""

from __future__ import annotations

import json

import pytest
from selenium import webdriver

from tests.page.browser import by, text_of, until
from tests.page.chats.test_chat import answers, questions
from tests.page.scripted import Scripted
from tests.page.steps import ask, open_page, send, wait_live

pytestmark = pytest.mark.browser
MOST_CHATS, MOST_CHARACTERS = 50, 2_000_000

FILL = """
  let fits = 0, over = 6_000_000;
  while (over - fits > 1) {
    const size = (fits + over) >> 1;
    try { localStorage.setItem("other", "x".repeat(size)); fits = size; } catch { over = size; }
  }
  localStorage.setItem("other", "x".repeat(fits));
"""


def kept(driver: webdriver.Chrome) -> list[str]:
    """The first questions of the kept chats, in any order."""
    script = "return Object.keys(localStorage).filter(k => k.startsWith('twostroke-chat:')).map(k => localStorage[k])"
    return [json.loads(each)["turns"][0]["question"] for each in driver.execute_script(script)]


def plant(driver: webdriver.Chrome, chats: int, characters: int) -> None:
    """Adds chats that are older than all others, the oldest first."""
    script = """
      for (let at = 0; at < arguments[0]; at += 1) {
        const answer = { text: "x".repeat(arguments[1]) };
        const chat = { id: `old-${at}`, at: at + 1, from: 0, turns: [{ question: `old ${at}`, answer }] };
        localStorage.setItem(`twostroke-chat:old-${at}`, JSON.stringify(chat));
      }
    """
    driver.execute_script(script, chats, characters)


def reload(driver: webdriver.Chrome) -> None:
    driver.refresh()
    wait_live(driver)


def test_a_chat_survives_a_reload_and_goes_on(chromium: webdriver.Chrome, script: Scripted) -> None:
    script.engine.answer = "**bold**"
    open_page(chromium, script.live)
    ask(chromium, "first")
    reload(chromium)
    assert questions(chromium) == ["first"] and answers(chromium) == ["bold"]
    assert by(chromium, "#messages .assistant strong").text == "bold"
    assert "TTFT" in text_of(chromium, "#messages .assistant .figures")
    ask(chromium, "second")
    assert script.last_text == "user: first\nassistant: **bold**\nuser: second\nassistant: "


@pytest.mark.daily
def test_an_answer_that_a_reload_interrupts_keeps_its_beginning(chromium: webdriver.Chrome, script: Scripted) -> None:
    gate = script.hold()
    open_page(chromium, script.live)
    send(chromium, "first")
    script.let(gate, 5)
    until(lambda: answers(chromium) == ["hello"], "the beginning")
    reload(chromium)
    assert questions(chromium) == ["first"] and answers(chromium) == ["hello"]
    assert text_of(chromium, "#messages .notice") == "The page was left before the answer ended."


def test_chats_are_listed_opened_and_deleted(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    for text in ("about cats", "about dogs"):
        ask(chromium, text)
        by(chromium, "#clear").click()
        assert questions(chromium) == [] and by(chromium, "#welcome").is_displayed()
    by(chromium, "#chats-open").click()
    titles = [each.text for each in chromium.find_elements("css selector", "#chats-list .title")]
    assert titles == ["about dogs", "about cats"]
    chromium.find_elements("css selector", "#chats-list .open")[1].click()
    assert questions(chromium) == ["about cats"] and text_of(chromium, "#chat-title") == "about cats"
    by(chromium, "#chats-open").click()
    delete = chromium.find_elements("css selector", "#chats-list .delete")[1]
    assert delete.accessible_name == "Delete: about cats"
    delete.click()
    assert kept(chromium) == ["about dogs"] and questions(chromium) == []  # the deleted chat was the open one
    by(chromium, "#chats-clear").click()
    assert kept(chromium) == ["about dogs"]
    by(chromium, "#chats-clear").click()  # it asks once more
    assert kept(chromium) == [] and "No chat yet" in text_of(chromium, "#chats-list")


@pytest.mark.parametrize(("chats", "characters"), [(60, 10), (10, 300_000)])
def test_what_is_kept_is_bounded(chromium: webdriver.Chrome, script: Scripted, chats: int, characters: int) -> None:
    open_page(chromium, script.live)
    plant(chromium, chats, characters)
    ask(chromium, "the newest")
    left = kept(chromium)
    assert "the newest" in left and "old 0" not in left and f"old {chats - 1}" in left
    assert len(left) <= MOST_CHATS and (len(left) - 1) * characters <= MOST_CHARACTERS


@pytest.mark.daily
def test_a_full_storage_drops_the_oldest_and_a_forbidden_one_is_said(
    chromium: webdriver.Chrome, script: Scripted
) -> None:
    open_page(chromium, script.live)
    plant(chromium, 3, 1000)
    chromium.execute_script(FILL)
    script.engine.answer = "z" * 900
    for place in range(2):
        ask(chromium, f"new {place}", most=900)
        assert "could not be kept" not in text_of(chromium, "#room")
        by(chromium, "#clear").click()
    left = kept(chromium)
    assert {"new 0", "new 1"} <= set(left) and "old 0" not in left, left
    chromium.execute_script("Storage.prototype.setItem = () => { throw new DOMException('no', 'QuotaExceededError'); }")
    ask(chromium, "not kept")
    assert "could not be kept" in text_of(chromium, "#room") and len(answers(chromium)) == 1


@pytest.mark.daily
def test_damaged_entries_are_no_obstacle(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    chromium.execute_script(
        """
        localStorage.setItem("twostroke-chat:a", "{");
        localStorage.setItem("twostroke-chat:b", JSON.stringify({ turns: [{ question: 1 }, null, 7] }));
        const odd = { turns: [{ question: "whole", answer: { text: 5 } }] };
        localStorage.setItem("twostroke-chat:c", JSON.stringify(odd));
        localStorage.setItem("twostroke-settings", "[");
        localStorage.setItem("twostroke-panels", "nonsense");
        """
    )
    reload(chromium)
    by(chromium, "#chats-open").click()
    assert [each.text for each in chromium.find_elements("css selector", "#chats-list .title")] == ["whole"]
    by(chromium, "#chats-list .open").click()
    assert questions(chromium) == ["whole"] and answers(chromium) == [""]
    ask(chromium, "it works")
    assert answers(chromium)[-1] == "hello world"
