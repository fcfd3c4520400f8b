"""The page in a real Chromium with a real engine: chat, live view, explain, recording, key, theme, keyboard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.page.browser import by, colours_in, complaints, forget, text_of, until
from tests.page.scripted import ABOUT
from tests.page.steps import ask, open_page, wait_live
from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.harness import Live, serving, slow_steps
from twostroke.server.live.view import EngineView

pytestmark = pytest.mark.browser
CANVASES = ("#steps", "#roofline", "#predicted", "#kv")


def test_a_chat_keeps_ttft_and_both_speeds_of_each_message(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    told = [ask(chromium, text) for text in ("What is prefill?", "And decode?")]
    for figures in told:
        assert "TTFT" in figures and "prefill" in figures and figures.count("tok/s") == 2, figures
    kept = chromium.execute_script(
        "return [...document.querySelectorAll('#messages .assistant')].map(e => e.textContent)"
    )
    assert [figures in text for figures, text in zip(told, kept, strict=True)] == [True, True]
    answers = chromium.execute_script(
        "return [...document.querySelectorAll('.assistant .text')].map(e => e.textContent)"
    )
    assert all(len(answer) > 10 for answer in answers)
    assert complaints(chromium) == []


def test_the_live_view_shows_what_the_engine_did(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    chromium.execute_script("for (const each of document.querySelectorAll('#engine details')) each.open = true")
    ask(chromium, "Why is decode bound by memory? " * 12, 60)
    until(lambda: "tokens, " in text_of(chromium, "#lanes li:first-child button"), "an ended lane")
    assert {css: colours_in(chromium, css) > 2 for css in CANVASES} == dict.fromkeys(CANVASES, True)
    assert colours_in(chromium, "#lanes li canvas") > 2
    by(chromium, "#steps").send_keys(Keys.END)
    assert "prefill" in text_of(chromium, "#steps-text") and "predicted" in text_of(chromium, "#steps-text")
    roof = text_of(chromium, "#roofline-text")
    assert "bound by" in roof and "Roof:" in roof
    assert spark.parts.serving.view.about["limits"]["source"].replace("`", "") in roof
    assert "of measured" in text_of(chromium, "#predicted-text")
    pages = text_of(chromium, "#kv-text")
    kv_tokens = spark.parts.serving.view.about["settings"]["kv_tokens"]
    assert f"{kv_tokens // 16} pages of 16 tokens" in pages and "cached" in pages
    latency = text_of(chromium, "#latency")
    assert "2.00 s" in latency and "100 ms" in latency and "%" in latency
    assert complaints(chromium) == []


def test_a_clicked_request_is_explained(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    ask(chromium, "What is a token?")
    until(lambda: "tokens, " in text_of(chromium, "#lanes li:first-child button"), "an ended lane")
    by(chromium, "#pause").click()  # old lanes disappear with time
    lane = by(chromium, "#lanes li:first-child")
    name, button = lane.get_attribute("data-request"), lane.find_element("tag name", "button")
    button.send_keys(Keys.ENTER)  # a lane is a button, so the keyboard reaches it
    until(lambda: "decode" in text_of(chromium, "#explain-body table"), "an explanation")
    told = spark.get(f"/v1/requests/{name}/explain").json["completions"][0]
    assert told["summary"] in text_of(chromium, "#explain-body .verdict")
    assert chromium.execute_script("return document.querySelectorAll('#explain-body .parts span').length") >= 2
    ActionChains(chromium).send_keys(Keys.ESCAPE).perform()
    until(lambda: not chromium.execute_script("return document.getElementById('explain').open"), "a closed dialog")


@pytest.mark.daily
def test_a_recording_opens_in_perfetto(chromium: webdriver.Chrome, spark: Live, tmp_path: Path) -> None:
    open_page(chromium, spark)
    by(chromium, "#record").click()
    ask(chromium, "Record this.", 20)
    by(chromium, "#record").click()
    file = tmp_path / "twostroke-trace.json"
    until(file.exists, "the download")
    events: list[dict[str, Any]] = until(lambda: json.loads(file.read_text() or "null"), "a whole file")["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    steps = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    assert "steps" in lanes and any(name.startswith("chatcmpl-") for name in lanes)
    assert 10 <= len(steps) <= 40 and all(event["dur"] > 0 for event in steps)
    assert complaints(chromium) == []


@pytest.mark.daily
def test_a_long_prompt_shows_its_progress(chromium: webdriver.Chrome, patient: Live) -> None:
    open_page(chromium, patient)
    script = """
      window.seen = [];
      new MutationObserver(() => {
        const bar = document.querySelector("#messages progress:not([hidden])");
        const words = document.querySelector("#messages li:last-child .figures")?.textContent;
        if (bar && words) window.seen.push([bar.value, bar.max, words]);
      }).observe(document.getElementById("messages"), { subtree: true, childList: true, attributes: true });
    """
    chromium.execute_script(script)
    story = "A long story: " + " ".join(f"word{i % 17}" for i in range(220))
    chromium.execute_script("document.getElementById('question').value = arguments[0]", story)  # typing would take long
    with slow_steps(0.2):
        ask(chromium, "!", 4)
    seen = chromium.execute_script("return window.seen")
    assert seen, "no progress was shown"
    assert all(0 <= value <= most for value, most, _ in seen)
    assert any("reading the prompt" in words or "waiting behind" in words for _, _, words in seen)


@pytest.mark.daily
def test_the_keyboard_chooses_a_step(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    ask(chromium, "Some steps.", 20)
    until(lambda: text_of(chromium, "#lanes button"), "steps")
    by(chromium, "#pause").click()
    steps = by(chromium, "#steps")
    texts = []
    for key in (Keys.HOME, Keys.ARROW_RIGHT):
        steps.send_keys(key)
        # The choice of a key is drawn with the next frame, which takes a while on a busy machine.
        chromium.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        texts.append(text_of(chromium, "#steps-text"))
    number = [int(text.split()[1].rstrip(":")) for text in texts]
    assert number[1] == number[0] + 1
    reached = []
    by(chromium, "h1").click()
    for _ in range(40):  # an answer has buttons, too
        ActionChains(chromium).send_keys(Keys.TAB).perform()
        reached.append(
            chromium.execute_script("return document.activeElement.id || document.activeElement.textContent")
        )
    assert {"theme", "clear", "settings-open", "question", "send", "record", "pause", "window", "steps"} <= set(
        reached
    ), reached


@pytest.mark.daily
def test_themes(chromium: webdriver.Chrome, spark: Live) -> None:
    open_page(chromium, spark)
    backs = []
    for theme in ("light", "dark"):
        Select(by(chromium, "#theme")).select_by_value(theme)
        backs.append(chromium.execute_script("return getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, back.removeprefix("rgb(").rstrip(")").split(","))) for back in backs)
    assert light > 600 > 200 > dark
    chromium.refresh()
    wait_live(chromium)
    assert chromium.execute_script("return document.documentElement.dataset.theme") == "dark"


def test_a_server_with_a_key_is_asked_with_it(chromium: webdriver.Chrome) -> None:
    parts = fake_parts(FakeEngine(), api_key="secret", view=EngineView(about=ABOUT))
    with serving(parts) as live:
        forget(chromium, live.url)
        chromium.get(live.url)
        for key, title in (("wrong", "This server asks for its API key"), ("secret", "That was not its key")):
            until(lambda title=title: text_of(chromium, "dialog[open] #key-title") == title, "the question for the key")
            by(chromium, "#key-text").send_keys(key, Keys.ENTER)
        wait_live(chromium)
        by(chromium, "#question").send_keys("hi", Keys.ENTER)
        until(lambda: text_of(chromium, "#messages .assistant .text") == "hello world", "the answer")


@pytest.mark.daily
def test_tabs_out_of_sight_leave_the_connections_to_the_others(chromium: webdriver.Chrome, spark: Live) -> None:
    """A browser opens six connections to a server. Seven tabs with a stream each would leave none for a chat."""
    first = chromium.current_window_handle
    open_page(chromium, spark)
    for _ in range(7):
        chromium.switch_to.new_window("tab")
        chromium.get(spark.url)
        wait_live(chromium)
    assert "TTFT" in ask(chromium, "What is prefill?")
    for handle in chromium.window_handles:
        if handle != first:
            chromium.switch_to.window(handle)
            chromium.close()
    chromium.switch_to.window(first)
    ask(chromium, "What is decode?", 30)
    until(lambda: text_of(chromium, "#last-text").startswith("30 tokens in "), "the view to go on")
