"""Chats that the server keeps. A second browser has them, changes of both stay, and nothing is lost while a browser is
away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.page.browser import browser, by, complaints, text_of, texts_of, until
from tests.page.chats.test_chat import answers, press, questions
from tests.page.chats.test_history import kept
from tests.page.scripted import Scripted, scripted
from tests.page.steps import LAST, ask, open_page, wait_answer, wait_live
from tests.page.test_files import give
from twostroke.server.stored.chats import StoredChats
from twostroke.server.stored.records import FullFolder, Records

pytestmark = pytest.mark.browser
ARROWS = "#messages li.user:nth-last-child(2) .versions span"
WHICH = ("first", "second")
UNSENT = "return Object.keys(localStorage).filter((key) => key.startsWith('twostroke-unsent:')).length"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def shared(folder: Path) -> Iterator[Scripted]:
    with scripted(chats=StoredChats(folder, 1 << 24)) as made:
        yield made


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Another browser, which shares nothing with the first."""
    with browser(tmp_path_factory.mktemp("second")) as driver:
        yield driver
        driver.get("about:blank")


def on_disk(folder: Path) -> list[dict[str, Any]]:
    """The chats that the server has."""
    found = []
    for path in folder.rglob("*.json"):
        found += json.loads(path.read_text())["chats"]
    return found


def all_sent(driver: webdriver.Chrome) -> None:
    until(lambda: driver.execute_script(UNSENT) == 0, "the server to have all")


def titles(driver: webdriver.Chrome) -> list[str]:
    return texts_of(driver, "#chats-list .title")


def open_chat(driver: webdriver.Chrome, title: str) -> None:
    by(driver, "#chats-open").click()
    until(lambda: title in titles(driver), title)
    driver.find_elements("css selector", "#chats-list .open")[titles(driver).index(title)].click()


def test_a_second_browser_sees_a_chat_and_goes_on_with_it(
    chromium: webdriver.Chrome, second: webdriver.Chrome, shared: Scripted, folder: Path
) -> None:
    open_page(chromium, shared.live)
    assert "on this server" in text_of(chromium, "#chats-where")
    give(chromium, "drop", "note.txt", "text/plain", b"kept")
    until(lambda: "4 tokens" in text_of(chromium, "#attached"), "the file")
    ask(chromium, "first")
    all_sent(chromium)
    assert kept(chromium) == []  # it is not in this browser any more
    (chat,) = on_disk(folder)
    assert chat["turns"][0]["question"] == "first" and chat["turns"][0]["answer"]["text"] == "hello world"
    open_page(second, shared.live)
    open_chat(second, "first")
    assert answers(second) == ["hello world"]
    shared.engine.answer = "more"
    ask(second, "second")
    assert shared.last_text.startswith("user: note.txt:\n```\nkept\n```\n\nfirst\nassistant: hello world\n")
    all_sent(second)
    by(chromium, "#chats-open").click()  # this reads from the server again
    until(lambda: answers(chromium) == ["hello world", "more"], "the other browser's turn in the open chat")
    by(chromium, "#chats .bar button").click()
    chromium.refresh()
    wait_live(chromium)
    assert questions(chromium) == ["first", "second"]
    assert [each for each in complaints(chromium) + complaints(second) if "/explain" not in each] == []


def test_what_two_browsers_add_at_once_stays_as_branches(
    chromium: webdriver.Chrome, second: webdriver.Chrome, shared: Scripted, folder: Path
) -> None:
    open_page(chromium, shared.live)
    ask(chromium, "first")
    all_sent(chromium)
    open_page(second, shared.live)
    open_chat(second, "first")
    shared.engine.answer = "one"
    ask(chromium, "from the first browser")
    all_sent(chromium)
    shared.engine.answer = "two"
    ask(second, "from the second browser")  # it has not seen the other browser's turn
    all_sent(second)
    (chat,) = on_disk(folder)
    assert {turn["question"] for turn in chat["turns"]} == {"first", *(f"from the {which} browser" for which in WHICH)}
    until(lambda: "/2" in text_of(second, ARROWS), "arrows between both")
    by(chromium, "#chats-open").click()
    until(lambda: "/2" in text_of(chromium, ARROWS), "the other branch")


def test_a_deleted_chat_is_gone_everywhere(
    chromium: webdriver.Chrome, second: webdriver.Chrome, shared: Scripted, folder: Path
) -> None:
    open_page(chromium, shared.live)
    for text in ("cats", "dogs"):
        ask(chromium, text)
        by(chromium, "#clear").click()
    all_sent(chromium)
    open_page(second, shared.live)
    by(second, "#chats-open").click()
    until(lambda: titles(second) == ["dogs", "cats"], "both")
    second.find_elements("css selector", "#chats-list .delete")[0].click()
    until(lambda: [chat["turns"][0]["question"] for chat in on_disk(folder)] == ["cats"], "one to be deleted")
    by(chromium, "#chats-open").click()
    until(lambda: titles(chromium) == ["cats"], "the list without it")


def test_a_chat_waits_in_the_browser_until_the_server_takes_it(
    chromium: webdriver.Chrome, shared: Scripted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FullFolder("No space left on device.")

    open_page(chromium, shared.live)
    with monkeypatch.context() as patch:
        patch.setattr(Records, "put", full)
        ask(chromium, "kept here")
        until(lambda: "No space left" in text_of(chromium, "#kept-note"), "what the server said")
        chromium.refresh()
        wait_live(chromium)
        assert questions(chromium) == ["kept here"] and on_disk(folder) == []
    by(chromium, "#chats-open").click()
    all_sent(chromium)
    (chat,) = on_disk(folder)
    assert chat["turns"][0]["answer"]["text"] == "hello world"
    until(lambda: text_of(chromium, "#kept-note") == "", "no more trouble")


def test_older_chats_of_the_browser_stay_there_until_they_go_on(
    chromium: webdriver.Chrome, script: Scripted, folder: Path
) -> None:
    open_page(chromium, script.live)
    ask(chromium, "older")
    old = chromium.execute_script("return {...localStorage}")
    with scripted(chats=StoredChats(folder, 1 << 24)) as later:
        open_page(chromium, later.live)
        chromium.execute_script("for (const [key, text] of Object.entries(arguments[0])) localStorage[key] = text", old)
        chromium.refresh()
        wait_live(chromium)
        open_chat(chromium, "older")
        assert on_disk(folder) == [] and answers(chromium) == ["hello world"]
        press(chromium, f"{LAST} .again")
        wait_answer(chromium)
        all_sent(chromium)
        (chat,) = on_disk(folder)
        assert len(chat["turns"]) == 2 and kept(chromium) == []


def test_damaged_chats_of_the_server_are_no_obstacle(
    chromium: webdriver.Chrome, shared: Scripted, folder: Path
) -> None:
    place = folder / "anyone"
    place.mkdir(parents=True)
    (place / "bad.json").write_text("{")
    (place / "odd.json").write_text(json.dumps({"format": "twostroke-chats", "version": 1, "chats": [{"turns": 7}]}))
    (place / "new.json").write_text(json.dumps({"format": "twostroke-chats", "version": 99, "chats": []}))
    open_page(chromium, shared.live)
    ask(chromium, "it works")
    all_sent(chromium)
    by(chromium, "#chats-open").click()
    until(lambda: titles(chromium) == ["it works"], "the whole one")
    assert text_of(chromium, "#kept-note") == ""


JOIN = """
  const [seed, done] = given;
  const { absorb } = await import("/page/kept/merge.js");
  const { added, newChat, pathOf } = await import("/page/kept/tree.js");
  let state = seed;
  const below = (count) => (state = (state * 48271) % 2147483647) % count;
  const grow = (chat, mark) => {
    for (let left = 1 + below(5); left; left -= 1) {
      const before = below(3) ? chat.turns[below(chat.turns.length + 1)] ?? null : chat.turns.at(-1) ?? null;
      added(chat, before, { question: `${mark}${left}` });
    }
  };
  const told = ({ turns }) =>
    turns.map(({ question, answer, parent }) => [question, answer.text, answer.key, turns[parent]?.answer.key ?? ""]);
  const sorted = (chat) => JSON.stringify(told(chat).sort((a, b) => (a[2] < b[2] ? -1 : 1)));
  const sound = (chat) =>
    [-1, ...chat.turns.keys()].every((place) => {
      const { chosen } = place < 0 ? chat : chat.turns[place];
      const children = chat.turns.filter(({ parent }) => parent === place);
      return children.length ? chat.turns[chosen]?.parent === place : chosen === -1;
    });
  const one = newChat();
  grow(one, "both");
  const two = structuredClone(one);
  one.turns[0].answer.text = "hello world"; // it grew in one of them
  two.turns[0].answer.text = "hello";
  grow(one, "one");
  grow(two, "two");
  const before = told(one), sent = structuredClone(one);
  const changed = absorb(one, two), again = absorb(one, two);
  absorb(two, sent);
  const kept = told(one).slice(0, before.length);
  done({
    changed, again, same: sorted(one) === sorted(two), stays: JSON.stringify(kept) === JSON.stringify(before),
    sound: sound(one) && sound(two), shown: pathOf(one).length > 0 && pathOf(two).length > 0,
  });
"""


def test_two_copies_of_a_tree_become_the_same_tree_and_lose_nothing(
    chromium: webdriver.Chrome, shared: Scripted
) -> None:
    open_page(chromium, shared.live)
    for seed in range(1, 60):
        script = f"(async () => {{ {JOIN} }})()"
        found = chromium.execute_async_script(f"const given = [...arguments]; {script}", seed)
        wanted = {"changed": True, "again": False, "same": True, "stays": True, "sound": True, "shown": True}
        assert found == wanted, seed
