"""The chat in a real Chromium: what is sent, what is shown, and what a reader may do with it."""

from __future__ import annotations

from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.page.browser import box, by, complaints, set_value, text_of, until
from tests.page.scripted import Scripted
from tests.page.steps import LAST, ask, open_page, send, wait_answer
from tests.serve.fakes import CONTEXT
from tests.serve.harness import Live
from twostroke.types.errors import EngineStopped

pytestmark = pytest.mark.browser
NOTICE = f"{LAST} .notice"
LONG = "\n\n".join(f"line {at}" for at in range(60))


def below(driver: webdriver.Chrome) -> float:
    """How much of the messages lies below the edge."""
    return float(
        driver.execute_script(
            "const s = document.getElementById('scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight"
        )
    )


def questions(driver: webdriver.Chrome) -> list[str]:
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('#messages .user .text')].map(e => e.textContent)"
    )
    return found


def answers(driver: webdriver.Chrome) -> list[str]:
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('#messages .assistant .text')].map(e => e.textContent)"
    )
    return found


def press(driver: webdriver.Chrome, css: str) -> None:
    """Presses a button by the keyboard, which also finds buttons to which the pointer would have to scroll."""
    by(driver, css).send_keys(Keys.ENTER)


def test_the_first_screen_says_what_spark_is_and_offers_three_questions(
    chromium: webdriver.Chrome, spark: Live
) -> None:
    open_page(chromium, spark)
    assert "5 million parameters" in text_of(chromium, "#welcome") and "LLM inference" in text_of(chromium, "#welcome")
    offered = chromium.find_elements("css selector", "#questions button")
    assert len(offered) == 3
    first = offered[0].text
    offered[0].click()
    wait_answer(chromium)
    assert questions(chromium) == [first] and len(answers(chromium)[0]) > 40
    assert chromium.execute_script("return document.getElementById('welcome').hidden")
    assert complaints(chromium) == []


@pytest.mark.daily
def test_another_model_is_named_on_the_first_screen(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    assert text_of(chromium, "#welcome-title") == "org/fake-model"
    assert len(chromium.find_elements("css selector", "#questions button")) == 3


@pytest.mark.daily
def test_the_newest_line_is_followed_until_the_reader_scrolls_up(chromium: webdriver.Chrome, script: Scripted) -> None:
    script.engine.answer = LONG
    gate = script.hold()
    open_page(chromium, script.live)
    send(chromium, "Count.")
    script.let(gate, 300)
    until(lambda: "line 33" in answers(chromium)[0], "some lines")
    until(lambda: below(chromium) < 2, "the newest line in sight")
    chromium.execute_script("document.getElementById('scroller').scrollTop = 40")
    until(lambda: by(chromium, "#newest").is_displayed(), "a way back to the newest line")
    script.let(gate, 200)
    until(lambda: "line 55" in answers(chromium)[0], "more lines")
    assert (
        below(chromium) > 100 and chromium.execute_script("return document.getElementById('scroller').scrollTop") == 40
    )
    by(chromium, "#newest").click()
    script.let(gate, 1000)
    wait_answer(chromium)
    until(lambda: below(chromium) < 2, "the newest line in sight")
    assert not by(chromium, "#newest").is_displayed()
    edge = box(chromium, "#scroller")["bottom"]
    assert box(chromium, f"{LAST} .explain")["bottom"] <= edge  # this includes the buttons below the answer


def test_an_error_is_in_sight_and_can_be_tried_again(chromium: webdriver.Chrome, script: Scripted) -> None:
    script.engine.answer = LONG
    script.engine.error, script.engine.error_after = EngineStopped("The engine is stopped."), 380
    open_page(chromium, script.live)
    send(chromium, "Count.")
    wait_answer(chromium)
    assert "line 40" in answers(chromium)[0]  # the text that had come stays
    assert box(chromium, NOTICE)["bottom"] <= box(chromium, "#scroller")["bottom"]
    assert by(chromium, NOTICE).get_attribute("class") == "notice error" and text_of(chromium, NOTICE)
    assert text_of(chromium, "#announcer").startswith("Error: ")
    script.engine.error = None
    script.engine.answer = "better"
    assert text_of(chromium, f"{LAST} .again") == "Try again"
    press(chromium, f"{LAST} .again")
    until(lambda: answers(chromium) == ["better"], "the second try")
    wait_answer(chromium)
    assert not by(chromium, NOTICE).is_displayed() and "writing" not in text_of(chromium, LAST)


def test_a_server_that_has_gone_is_said_in_plain_words(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    chromium.execute_cdp_cmd("Network.enable", {})
    conditions = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    chromium.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)
    try:
        send(chromium, "Hello?")
        wait_answer(chromium)
        assert text_of(chromium, NOTICE) == "The server does not answer. Does it still run?"
    finally:
        chromium.execute_cdp_cmd("Network.emulateNetworkConditions", {**conditions, "offline": False})


@pytest.mark.daily
def test_an_answer_that_was_cut_says_so_and_why(chromium: webdriver.Chrome, script: Scripted) -> None:
    script.engine.answer = "x" * 3000
    open_page(chromium, script.live)
    ask(chromium, "Write.", most=20)
    assert text_of(chromium, NOTICE) == "The answer was cut after 20 tokens: that is the limit in Settings."
    ask(chromium, "More.", most=CONTEXT)
    room = CONTEXT - len(script.last.token_ids)
    assert script.last.params.max_tokens == room
    assert text_of(chromium, NOTICE) == f"The answer was cut after {room} tokens: the context of 1,024 tokens is full."


def test_a_cut_answer_is_continued_where_it_ends(chromium: webdriver.Chrome, script: Scripted) -> None:
    script.engine.answer = "a" * 3000
    open_page(chromium, script.live)
    ask(chromium, "Write.", most=20)
    script.engine.answer = "b" * 5
    press(chromium, f"{LAST} .go-on")
    until(lambda: answers(chromium) == ["a" * 20 + "b" * 5], "the rest of the answer")
    wait_answer(chromium)
    assert script.last_text.endswith("user: Write.\nassistant: " + "a" * 20)
    assert not by(chromium, NOTICE).is_displayed() and not by(chromium, f"{LAST} .go-on").is_displayed()
    chromium.refresh()
    until(lambda: answers(chromium) == ["a" * 20 + "b" * 5], "the kept answer")


@pytest.mark.daily
def test_an_answer_that_was_stopped_can_be_continued(chromium: webdriver.Chrome, script: Scripted) -> None:
    script.engine.answer = "c" * 30
    gate = script.hold()
    open_page(chromium, script.live)
    send(chromium, "Write.")
    script.let(gate, 7)
    until(lambda: answers(chromium) == ["c" * 7], "some letters")
    by(chromium, "#stop").click()
    until(lambda: by(chromium, f"{LAST} .go-on").is_displayed(), "the button")
    script.engine.gate = None
    script.engine.answer = "d"
    press(chromium, f"{LAST} .go-on")
    until(lambda: answers(chromium) == ["c" * 7 + "d"], "the rest of the answer")


@pytest.mark.daily
def test_the_most_tokens_are_held_within_the_context(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    by(chromium, "#settings-open").click()
    field = by(chromium, "#setting-max_tokens")
    assert field.get_attribute("value") == str(CONTEXT - 1)  # the default, because the context is smaller
    for given, kept in (("999999", str(CONTEXT - 1)), ("-3", "1"), ("12.4", "12"), ("", "")):
        set_value(chromium, "#setting-max_tokens", given)
        assert field.get_attribute("value") == kept
    by(chromium, "#settings button").click()
    send(chromium, "As long as you like.")
    wait_answer(chromium)
    assert script.last.params.max_tokens == CONTEXT - len(script.last.token_ids)


@pytest.mark.daily
def test_old_turns_that_no_longer_fit_are_left_out_and_that_is_said(
    chromium: webdriver.Chrome, script: Scripted
) -> None:
    script.engine.answer = "y" * 150
    open_page(chromium, script.live)
    for place in range(6):
        ask(chromium, f"question {place}", most=200)
        assert not text_of(chromium, NOTICE), "nothing is refused, nothing is cut"
    sent = script.last_text
    assert "question 0" not in sent and "question 5" in sent
    first = sent.index("question ")
    dropped = int(sent[first + len("question ")])
    assert sent.startswith("user: ") and len(sent) < CONTEXT / 2 + 200
    line = by(chromium, "#messages .dropped")
    assert "above no longer fit" in line.text and "1,024" in line.text
    place = chromium.execute_script(
        "return [...document.querySelectorAll('#messages > li')].findIndex(e => e.className === 'dropped')"
    )
    assert place == 2 * dropped
    assert len(questions(chromium)) == 6  # the reader still has all of them


def test_a_message_that_cannot_fit_is_refused_with_its_length(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    set_value(chromium, "#question", "z" * 1100)
    press(chromium, "#send")
    wait_answer(chromium)
    assert "too long" in text_of(chromium, NOTICE) and "1,118 tokens" in text_of(chromium, NOTICE)
    assert script.engine.prompts == []
    ask(chromium, "short")
    assert "z" not in script.last_text.replace("org/fake-model", "") and not text_of(chromium, NOTICE)


@pytest.mark.daily
def test_reasoning_is_open_while_it_comes_and_folded_behind_the_answer(
    chromium: webdriver.Chrome, thinking: Scripted
) -> None:
    thinking.engine.answer = "<think>First I count. Then I add.</think>It is 4."
    gate = thinking.hold()
    open_page(chromium, thinking.live)
    send(chromium, "2 + 2?")
    thinking.let(gate, 25)
    until(lambda: "First I count" in by(chromium, f"{LAST} .thoughts").text, "reasoning in sight")
    thinking.let(gate, 100)
    wait_answer(chromium)
    assert answers(chromium) == ["It is 4."]
    assert not by(chromium, f"{LAST} .thoughts").is_displayed()
    summary = by(chromium, f"{LAST} .reasoning summary")
    assert summary.text.startswith("Reasoning, ")
    summary.click()
    assert by(chromium, f"{LAST} .thoughts").text == "First I count. Then I add."
    ask(chromium, "And 3 + 3?")
    assert "I count" not in thinking.last_text  # thoughts are not sent again


def test_an_answer_is_markdown_and_its_code_can_be_copied(chromium: webdriver.Chrome, script: Scripted) -> None:
    code = "for i in range(3):\n    print(i)"
    script.engine.answer = f"Use **this**:\n\n```python\n{code}\n```\n<img src=x onerror=alert(1)>"
    open_page(chromium, script.live)
    ask(chromium, "Code?", most=200)
    assert by(chromium, f"{LAST} .text strong").text == "this"
    assert by(chromium, f"{LAST} .text pre code").get_property("textContent") == code
    assert chromium.find_elements("css selector", f"{LAST} .text img") == []
    for css, expected in ((f"{LAST} .code .copy", code), (f"{LAST} .actions .copy", script.engine.answer)):
        assert copied(chromium, css) == expected
    assert [each for each in complaints(chromium) if "/explain" not in each] == []  # the fake engine explains nothing


def copied(driver: webdriver.Chrome, css: str) -> str:
    """The text that a copy button gives to the clipboard."""
    driver.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    press(driver, css)
    until(lambda: text_of(driver, css) == "Copied", "the button to say so")
    return str(driver.execute_script("return window.copied"))


@pytest.mark.daily
def test_without_a_clipboard_text_is_copied_the_old_way(chromium: webdriver.Chrome, script: Scripted) -> None:
    """Addresses without https have no clipboard."""
    open_page(chromium, script.live)
    ask(chromium, "Hello")
    chromium.execute_script(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('insecure'));"
        "document.execCommand = () => { window.copied = document.activeElement.value; return true; }"
    )
    press(chromium, f"{LAST} .actions .copy")
    until(lambda: chromium.execute_script("return window.copied") == "hello world", "the text")


def test_an_edited_question_is_shown_in_the_place_of_the_old_one_and_of_what_follows(
    chromium: webdriver.Chrome, script: Scripted
) -> None:
    open_page(chromium, script.live)
    for text in ("first", "second", "third"):
        ask(chromium, text)
    press(chromium, "#messages li.user:nth-of-type(3) .edit")
    assert "begins a branch" in text_of(chromium, ".editor")
    field = by(chromium, ".editor textarea")
    assert field.get_attribute("value") == "second"
    field.send_keys(" thought", Keys.ENTER)
    until(lambda: questions(chromium) == ["first", "second thought"], "the new question")
    wait_answer(chromium)
    assert script.last_text == "user: first\nassistant: hello world\nuser: second thought\nassistant: "
    press(chromium, "#messages li.user .edit")
    by(chromium, ".editor textarea").send_keys("!", Keys.ESCAPE)
    assert questions(chromium) == ["first", "second thought"]


@pytest.mark.daily
def test_the_last_answer_can_be_had_again(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    ask(chromium, "first")
    script.engine.answer = "one"
    ask(chromium, "second")
    script.engine.answer = "two"
    shown = [each for each in chromium.find_elements("css selector", ".again") if each.is_displayed()]
    assert len(shown) == 1
    press(chromium, f"{LAST} .again")
    until(lambda: answers(chromium) == ["hello world", "two"], "the other answer")
    wait_answer(chromium)
    assert script.last_text.endswith("user: second\nassistant: ") and "one" not in script.last_text


def test_stop_keeps_what_has_come(chromium: webdriver.Chrome, script: Scripted) -> None:
    gate = script.hold()
    open_page(chromium, script.live)
    send(chromium, "Begin.")
    script.let(gate, 5)
    until(lambda: answers(chromium) == ["hello"], "the beginning")
    by(chromium, "#stop").click()
    wait_answer(chromium)
    assert text_of(chromium, NOTICE) == "You stopped this answer." and answers(chromium) == ["hello"]
    until(lambda: script.engine.closed_early == 1, "the server to stop too")
    script.engine.gate = None
    ask(chromium, "Go on.")
    assert script.last_text == "user: Begin.\nassistant: hello\nuser: Go on.\nassistant: "


def test_system_prompt_and_sampling_are_sent_and_kept(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    before = script.live.chat()
    assert before.status == 200
    ask(chromium, "plain")
    plain = script.last.params
    assert plain.temperature == script.engine.prompts[0].params.temperature  # nothing is chosen for the model
    wanted = {"temperature": 0.3, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "seed": 7}
    set_value(chromium, "#setting-system", "Be brief.")
    for name, value in wanted.items():
        set_value(chromium, f"#setting-{name}", str(value))
    set_value(chromium, "#setting-temperature", "9")
    assert by(chromium, "#setting-temperature").get_attribute("value") == "2"
    set_value(chromium, "#setting-temperature", "0.3")
    chromium.refresh()
    until(lambda: text_of(chromium, "#state") == "live", "frames")
    ask(chromium, "chosen")
    assert script.last_text.startswith("system: Be brief.\nuser: plain\n")
    params = script.last.params
    assert {name: getattr(params, name) for name in wanted} == wanted
    by(chromium, "#settings-open").click()
    by(chromium, "#settings-reset").click()
    assert by(chromium, "#setting-temperature").get_attribute("value") == ""


def test_screen_readers_hear_an_answer_once(chromium: webdriver.Chrome, spark: Live) -> None:
    """Live regions change when a state begins or an answer ends, and not with each token or frame."""
    open_page(chromium, spark)
    chromium.execute_script(
        """
        window.heard = [];
        const kinds = '[aria-live]:not([aria-live=off]), [role=status], [role=log], [role=alert]';
        const lives = [...document.querySelectorAll(kinds)];
        for (const each of lives) new MutationObserver(() => window.heard.push([each.id, each.textContent]))
          .observe(each, { subtree: true, childList: true, characterData: true });
        """
    )
    ask(chromium, "What is prefill?", most=100)
    until(lambda: "tokens, " in text_of(chromium, "#lanes li:first-child button"), "frames that have the request")
    heard: list[list[Any]] = chromium.execute_script("return window.heard")
    assert [name for name, _ in heard] == ["announcer"], heard
    assert heard[0][1].startswith("spark: ") and answers(chromium)[0][:40] in heard[0][1]


TOOLS = '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]'
CALL = 'I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "<b>Oslo</b>"}}\n</tool_call>'


def test_a_call_is_a_card_and_its_result_goes_back(chromium: webdriver.Chrome, thinking: Scripted) -> None:
    thinking.engine.answer = CALL
    open_page(chromium, thinking.live)
    set_value(chromium, "#setting-tools", TOOLS)
    ask(chromium, "How is it in Oslo?", most=200)
    assert answers(chromium) == ["I look."]
    card = text_of(chromium, f"{LAST} .call")
    assert "weather" in card and '"city": "<b>Oslo</b>"' in card
    thinking.engine.answer = "It rains."
    by(chromium, f"{LAST} .call textarea").send_keys("rain, 9 degrees")
    press(chromium, f"{LAST} .calls button")
    until(lambda: answers(chromium) == ["I look.", "It rains."], "the next answer")
    wait_answer(chromium)
    assert "rain, 9 degrees" in thinking.last_text and "weather" in thinking.last_text
    assert thinking.last_text.count("How is it in Oslo?") == 1
    chromium.refresh()
    until(lambda: "rain, 9 degrees" in text_of(chromium, "#messages .call .result"), "the kept result")


@pytest.mark.daily
def test_tools_that_are_no_list_are_not_offered(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    set_value(chromium, "#setting-tools", "[weather")
    assert "no JSON list" in text_of(chromium, "#settings [role=status]")
    ask(chromium, "Hi")
    assert answers(chromium) == ["hello world"] and "weather" not in script.last_text
