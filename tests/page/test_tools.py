"""Tools of an MCP server on the page. They are offered where the reader ticks the server, and run where the reader
agrees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.page.browser import by, complaints, resize, text_of, until
from tests.page.scripted import Scripted, scripted
from tests.page.steps import LAST, ask, open_page, wait_answer, wait_live
from tests.page.test_layout import CUT, too_wide
from tests.serve.tool_server import Tools, tools
from twostroke.server.attached.tool_servers import ToolServer
from twostroke.text.talk.catalog import FORMATS

pytestmark = pytest.mark.browser
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'


@pytest.fixture
def there() -> Iterator[Tools]:
    with tools() as made:
        yield made


@pytest.fixture
def script(there: Tools) -> Iterator[Scripted]:
    with scripted(format=FORMATS["hermes"], tool_servers=(ToolServer("files", there.url),)) as made:
        yield made


def tick(driver: webdriver.Chrome) -> None:
    """Uses the server of tools, and waits until its tools are known."""
    until(lambda: driver.execute_script("return Boolean(document.querySelector('#setting-mcp input'))"), "the server")
    driver.execute_script("document.querySelector('#setting-mcp input').click()")
    until(lambda: text_of(driver, "#setting-mcp [role=status]") == "files: weather, clock", "its tools")


def value(driver: webdriver.Chrome) -> str:
    return str(driver.execute_script(f"return document.querySelector('{LAST} .call textarea').value"))


def test_a_call_runs_when_the_reader_says_so(chromium: webdriver.Chrome, script: Scripted, there: Tools) -> None:
    open_page(chromium, script.live)
    tick(chromium)
    script.engine.answer = CALL
    ask(chromium, "How is it in Ulm?", most=200)
    assert "tool weather" in script.last_text and "tool clock" in script.last_text
    assert "tools/call" not in [each["method"] for each in there.asked], "nothing runs unasked"
    run = by(chromium, f"{LAST} .call .run")
    assert run.text == "Run at files"
    for width in (390, 1440):
        resize(chromium, width, 844)
        assert too_wide(chromium) == [] and chromium.execute_script(CUT) == []
    chromium.execute_script("arguments[0].click()", run)
    until(lambda: value(chromium) == "dry in Ulm", "its result")
    script.engine.answer = "It is dry."
    by(chromium, f"{LAST} .calls button[type=submit]").click()
    until(lambda: text_of(chromium, f"{LAST} .text").strip() == "It is dry.", "the next answer")
    wait_answer(chromium)
    assert "dry in Ulm" in script.last_text
    assert [each for each in complaints(chromium) if "/explain" not in each] == []  # the fake engine explains nothing


def test_a_session_that_ended_is_begun_again_and_errors_are_shown(
    chromium: webdriver.Chrome, script: Scripted, there: Tools
) -> None:
    open_page(chromium, script.live)
    tick(chromium)
    script.engine.answer = CALL
    ask(chromium, "How is it in Ulm?", most=200)
    there.sessions += 1  # the server has started again, so it knows no earlier session
    chromium.execute_script("arguments[0].click()", by(chromium, f"{LAST} .call .run"))
    until(lambda: value(chromium) == "dry in Ulm", "its result")
    there.reply = (500, {}, b"")
    chromium.execute_script("arguments[0].click()", by(chromium, f"{LAST} .call .run"))
    until(lambda: value(chromium).startswith("Error: The server of tools 'files'"), "the error")
    complaints(chromium)


def test_what_was_ticked_is_kept_and_can_be_left(chromium: webdriver.Chrome, script: Scripted) -> None:
    open_page(chromium, script.live)
    ask(chromium, "Hi")
    assert "clock" not in script.last_text
    tick(chromium)
    chromium.refresh()
    wait_live(chromium)
    until(lambda: text_of(chromium, "#setting-mcp [role=status]") == "files: weather, clock", "its tools again")
    ask(chromium, "Hi")
    assert "clock" in script.last_text
    chromium.execute_script("document.querySelector('#setting-mcp input').click()")
    ask(chromium, "Hi again")
    assert "clock" not in script.last_text.split("Hi again")[-1]
    assert "clock" not in script.last_text
