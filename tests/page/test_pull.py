"""Fetching a model from the page: size, licence and fit come before a byte of it, then progress, then it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.cluster.several import Several, several
from tests.cluster.test_pulls import places
from tests.page.browser import by, complaints, forget, resize, text_of, until
from tests.page.steps import LAST, ask, wait_live
from tests.page.test_layout import CUT, too_wide
from tests.page.test_models import press_in, row
from tests.weights import hub_models
from tests.weights.fake_hub import FakeHub, serve

pytestmark = pytest.mark.browser


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serve(hub_models.repos()) as running:
        yield running


@pytest.fixture
def server(hub: FakeHub, tmp_path: Path) -> Iterator[Several]:
    with several(tmp_path / "log", "spark", "--pulls", **places(hub, tmp_path)) as made:
        yield made


def look_up(driver: webdriver.Chrome, name: str) -> str:
    """The facts that the page shows of a model."""
    field = by(driver, "#pull-name")
    field.clear()
    field.send_keys(name)
    by(driver, "#pull-look").click()
    until(lambda: not driver.execute_script("return document.getElementById('pull-look').disabled"), "the hub")
    return text_of(driver, "#pull-facts")


def test_a_model_is_looked_up_fetched_and_asked(chromium: webdriver.Chrome, server: Several, hub: FakeHub) -> None:
    forget(chromium, server.url)
    chromium.get(server.url)
    wait_live(chromium)
    by(chromium, "#models-open").click()
    until(lambda: by(chromium, "#pull").is_displayed(), "the form")
    facts = look_up(chromium, "acme/spark-GGUF")
    assert "apache-2.0" in facts and "to download" in facts and "tokens" in facts
    assert not [entry for entry in hub.ranges if entry.endswith("-")], "a byte of the weights"
    for width in (390, 1440):
        resize(chromium, width, 844)
        assert too_wide(chromium) == [] and chromium.execute_script(CUT) == []
    by(chromium, "#pull-begin").click()
    until(lambda: "is here" in text_of(chromium, "#pull-said"), "the end of the download")
    until(lambda: row(chromium, "spark-GGUF"), "its line in the list")
    press_in(chromium, "spark-GGUF", ".open")
    until(lambda: not by(chromium, "#models").is_displayed(), "the menu to close")
    assert "TTFT" in ask(chromium, "What is prefill?", 20)
    assert text_of(chromium, f"{LAST} .who") == "spark-GGUF"
    assert complaints(chromium) == []


def test_what_does_not_fit_is_said_before_anything_is_fetched(
    chromium: webdriver.Chrome, server: Several, hub: FakeHub
) -> None:
    forget(chromium, server.url)
    chromium.get(server.url)
    wait_live(chromium)
    by(chromium, "#models-open").click()
    until(lambda: by(chromium, "#pull").is_displayed(), "the form")
    assert "does not fit" in look_up(chromium, "acme/huge")
    assert by(chromium, "#pull-begin").text == "Download it all the same"
    assert "NoSuchForCausalLM" in look_up(chromium, "acme/strange")
    assert look_up(chromium, "acme/nothing") == "" and text_of(chromium, "#pull-said")
    assert not by(chromium, "#pull-begin").is_displayed()
    assert "model must be" in (look_up(chromium, "../etc") or text_of(chromium, "#pull-said"))
    assert not [path for command, path in hub.requests if command == "GET" and path.endswith(".safetensors")]


def test_events_of_models_reach_a_browser(chromium: webdriver.Chrome, server: Several) -> None:
    chromium.get(server.url)
    wait_live(chromium)
    listen = """
      window.heard = [];
      new EventSource("models/sse").onmessage = ({ data }) => window.heard.push(JSON.parse(data));
    """
    chromium.execute_script(listen)
    assert server.http.post("/models", json={"model": "acme/spark-GGUF"}).status_code == 200
    kinds = "return [...new Set(window.heard.map(({ event }) => event))]"
    until(lambda: "download_finished" in chromium.execute_script(kinds), "the end of the download")
    assert "download_progress" in chromium.execute_script(kinds)
