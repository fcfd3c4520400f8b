"""Chats that leave and enter the browser as files, and the search over them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.page.browser import by, complaints, text_of, texts_of, until
from tests.page.chats.test_chat import answers, press, questions
from tests.page.chats.test_history import MOST_CHATS, kept, plant
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page, wait_answer
from tests.page.test_files import give
from tests.vision.folders import picture, png

pytestmark = pytest.mark.browser
PNG = f"data:image/png;base64,{base64.b64encode(png(picture(3, 2))).decode()}"
STORED = """
  const own = Object.keys(localStorage).filter((key) => key.startsWith("twostroke-chat:"));
  return own.sort().map((key) => localStorage[key]);
"""

OPEN_WEBUI: Any = [
    {
        "id": "a",
        "title": "Cats",
        "updated_at": 1_700_000_000,
        "chat": {
            "history": {
                "currentId": "3",
                "messages": {
                    "1": {"id": "1", "parentId": None, "role": "user", "content": "Which cat?"},
                    "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "Felix", "model": "m"},
                    "3": {"id": "3", "parentId": "1", "role": "assistant", "content": "Tom"},
                    "4": {"id": "4", "parentId": "2", "role": "user", "content": "Why Felix?"},
                },
            }
        },
    },
    {"nothing": 1},
]
CHATGPT: Any = [
    {
        "title": "Dogs",
        "update_time": 1_700_000_001.5,
        "current_node": "d",
        "mapping": {
            "r": {"message": None, "parent": None},
            "s": {"message": {"author": {"role": "system"}, "content": {"parts": [""]}}, "parent": "r"},
            "u": {"message": {"author": {"role": "user"}, "content": {"parts": ["Which dog?"]}}, "parent": "s"},
            "h": {"message": {"author": {"role": "tool"}, "content": {"parts": ["looked up"]}}, "parent": "u"},
            "d": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["Rex", {}]}}, "parent": "h"},
        },
    }
]
LLAMA_CPP: Any = {
    "conv": {"id": "c", "name": "Birds", "lastModified": 1_700_000_002_000, "currNode": "2"},
    "messages": [
        {"id": "0", "type": "root", "parent": None, "role": "system", "content": ""},
        {
            "id": "1",
            "parent": "0",
            "role": "user",
            "content": "Which bird?",
            "extra": [{"type": "IMAGE", "name": "bird.png", "base64Url": PNG}],
        },
        {"id": "2", "parent": "1", "role": "assistant", "content": "A wren", "thinking": "small"},
    ],
}
PLAIN: Any = [
    {"role": "system", "content": "x"},
    {"role": "user", "content": [{"type": "text", "text": "Which fish?"}]},
    {"role": "assistant", "content": "Cod"},
]


def carry_in(driver: webdriver.Chrome, file: Path, content: Any) -> str:
    """Imports a file. Returns what the page writes about it."""
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    driver.execute_script("document.getElementById('chats-note').textContent = ''")
    by(driver, "#chats-file").send_keys(str(file))
    return str(until(lambda: text_of(driver, "#chats-note"), "words about the import"))


def titles(driver: webdriver.Chrome) -> list[str]:
    return texts_of(driver, "#chats-list .title")


def open_chat(driver: webdriver.Chrome, title: str) -> None:
    driver.find_elements("css selector", "#chats-list .open")[titles(driver).index(title)].click()


def test_exported_chats_come_back_as_they_were(chromium: webdriver.Chrome, script: Scripted, tmp_path: Path) -> None:
    open_page(chromium, script.live)
    give(chromium, "drop", "note.txt", "text/plain", b"kept")
    until(lambda: "4 tokens" in text_of(chromium, "#attached"), "the file")
    ask(chromium, "first")
    press(chromium, f"{LAST} .again")
    wait_answer(chromium)
    by(chromium, "#clear").click()
    ask(chromium, "other")
    before = chromium.execute_script(STORED)
    by(chromium, "#chats-open").click()
    by(chromium, "#chats-export").click()
    file = tmp_path / "twostroke-chats.json"
    until(lambda: file.exists() and file.read_text(), "the download")
    text = file.read_text()
    assert carry_in(chromium, tmp_path / "again.json", text) == "0 chats are imported. 2 chats were here already."
    for _ in range(2):
        by(chromium, "#chats-clear").click()
    assert kept(chromium) == []
    assert carry_in(chromium, tmp_path / "again.json", text) == "2 chats are imported."
    assert chromium.execute_script(STORED) == before
    open_chat(chromium, "first")
    assert text_of(chromium, f"{LAST} .versions span") == "2/2"
    script.engine.answer = "more"
    ask(chromium, "second")
    assert script.last_text.startswith("user: note.txt:\n```\nkept\n```\n\nfirst\nassistant: hello world\n")
    assert [each for each in complaints(chromium) if "/explain" not in each] == []


@pytest.mark.daily
def test_exports_of_other_programs_are_read(chromium: webdriver.Chrome, script: Scripted, tmp_path: Path) -> None:
    open_page(chromium, script.live)
    by(chromium, "#chats-open").click()
    told = carry_in(chromium, tmp_path / "open-webui.json", OPEN_WEBUI)
    assert told == "1 chat is imported. 1 entry is no chat."
    assert carry_in(chromium, tmp_path / "open-webui.json", OPEN_WEBUI).startswith("0 chats are imported. 1 chat was")
    for name, content in (("chatgpt", CHATGPT), ("llama", LLAMA_CPP), ("plain", PLAIN)):
        assert carry_in(chromium, tmp_path / f"{name}.json", content) == "1 chat is imported."
    assert titles(chromium) == ["Birds", "Dogs", "Cats", "Which fish?"]  # the newest first
    open_chat(chromium, "Cats")
    assert questions(chromium) == ["Which cat?"] and answers(chromium) == ["Tom"]
    press(chromium, f"{LAST} .versions .back")
    assert questions(chromium) == ["Which cat?", "Why Felix?"] and answers(chromium)[0] == "Felix"
    for title, question, answer in (("Dogs", "Which dog?", "Rex"), ("Birds", "Which bird?", "A wren"),
                                    ("Which fish?", "Which fish?", "Cod")):  # fmt: skip
        by(chromium, "#chats-open").click()
        open_chat(chromium, title)
        assert (questions(chromium), answers(chromium)) == ([question], [answer])
        if title == "Birds":
            assert text_of(chromium, f"{LAST} .thoughts") == "small"
            until(lambda: chromium.find_elements("css selector", "[aria-label='Image bird.png']"), "its image")
    ask(chromium, "Why?")
    assert script.last_text == "user: Which fish?\nassistant: Cod\nuser: Why?\nassistant: "


def test_a_bad_file_is_one_message_and_no_chat_goes(
    chromium: webdriver.Chrome, script: Scripted, tmp_path: Path
) -> None:
    open_page(chromium, script.live)
    plant(chromium, MOST_CHATS - 1, 10)
    before = chromium.execute_script(STORED)
    by(chromium, "#chats-open").click()
    own = {"format": "twostroke-chats", "version": 1}
    for content, words in (
        ("{", "is no JSON file"),
        ("[]", "holds no chats"),
        ('"text"', "holds no chats"),
        ([1, None, {"mapping": {"a": None, "b": 7}}, {"history": {"messages": {"a": {"parentId": "a"}}}}], "no chats"),
        ({**own, "chats": [{"turns": [{"question": 1}, 5, None]}], "contents": 7}, "holds no chats"),
        ({**own, "version": 2, "chats": []}, "newer page"),
    ):
        told = carry_in(chromium, tmp_path / "bad.json", content)
        assert words in told and told.startswith("bad.json ") and "nothing was imported" in told
    assert chromium.execute_script(STORED) == before
    turn = {"question": "q", "answer": {"text": "a"}}
    chats = [{"id": f"new-{at}", "at": at, "turns": [turn]} for at in range(3)]
    told = carry_in(chromium, tmp_path / "many.json", {**own, "chats": chats})
    assert told.startswith("1 chat is imported. There is no room for 2 chats: ")
    assert set(before) < set(chromium.execute_script(STORED))


@pytest.mark.daily
def test_search_finds_words_in_every_branch(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    script.engine.answer = "The pelican crosses the river."
    ask(chromium, "A bird?")
    script.engine.answer = "An owl."
    press(chromium, f"{LAST} .again")
    wait_answer(chromium)
    by(chromium, "#clear").click()
    ask(chromium, "A fish?")
    by(chromium, "#chats-open").click()
    by(chromium, "#chats-search").send_keys("PELICAN cross")
    # Until the last letter is searched for, a smaller part of the words is marked.
    until(lambda: texts_of(chromium, "#chats-list mark") == ["pelican cross"], "the words in the chat")
    assert titles(chromium) == ["A bird?"]
    by(chromium, "#chats-list .open").click()
    until(lambda: answers(chromium) == ["The pelican crosses the river."], "the branch that has the words")
    by(chromium, "#chats-open").click()
    by(chromium, "#chats-search").send_keys("heron")
    until(lambda: "No chat has these words" in text_of(chromium, "#chats-list"), "nothing")
