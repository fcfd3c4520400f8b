"""A model of a hub on this machine is fetched from the page: first its fit, then progress, a stop and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.cluster.several_models.several import Several, several
from tests.cluster.several_models.test_pulls import NEW, places
from tests.faults.test_store_faults import MOST_LOST
from tests.page.browser import by, complaints, forget, resize, set_value, text_of, until
from tests.page.steps import LAST, ask, wait_live
from tests.page.test_layout import CUT, too_wide
from tests.page.test_models import press_in, row
from tests.weights import hub_models
from tests.weights.fake_hub import FakeHub, serve
from tests.weights.hub_models import NAME

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serve(hub_models.repos()) as running:
        yield running


@pytest.fixture
def server(hub: FakeHub, tmp_path: Path) -> Iterator[Several]:
    with several(tmp_path / "log", "spark", "--pulls", "--kv-memory", "20MB", **places(hub, tmp_path)) as made:
        yield made


def said(driver: webdriver.Chrome) -> str:
    return text_of(driver, "#pull-said")


def look_up(driver: webdriver.Chrome, name: str) -> None:
    set_value(driver, "#pull-name", name)
    by(driver, "#pull-look").click()


def _here(folder: Path) -> int:
    """Bytes of a download that are on the disk."""
    return max([*(path.stat().st_size for path in (folder / "hub").rglob("*partial")), 0])


def test_a_model_is_looked_up_fetched_stopped_fetched_again_and_answers(
    chromium: webdriver.Chrome, server: Several, hub: FakeHub, tmp_path: Path
) -> None:
    half, goes_on = len(hub_models.spark_gguf()) // 2, threading.Event()
    hub.stops_at[NAME] = (half, lambda name: goes_on.wait(60) and None)
    forget(chromium, server.url)
    chromium.get(server.url)
    wait_live(chromium)
    by(chromium, "#models-open").click()
    until(lambda: by(chromium, "#pull").is_displayed(), "the form, because this server has --pulls")
    look_up(chromium, "acme/none")
    until(lambda: "none" in said(chromium), "what is wrong with an unknown name")
    look_up(chromium, "acme/huge")
    until(lambda: "does not fit" in text_of(chromium, "#pull-facts"), "that it does not fit")
    assert text_of(chromium, "#pull-begin") == "Download it all the same"
    look_up(chromium, NEW)
    until(lambda: "apache-2.0" in text_of(chromium, "#pull-facts"), "its licence")
    facts = text_of(chromium, "#pull-facts")
    assert NEW in facts and NAME in facts and "to download" in facts and "fits" in facts.lower()
    for width in (390, 1440):
        resize(chromium, width, 844)
        assert too_wide(chromium) == [] and chromium.execute_script(CUT) == []
    assert not [path for command, path in hub.requests if command == "GET" and path.endswith("tensors")]
    assert text_of(chromium, "#pull-begin") == "Download"

    by(chromium, "#pull-begin").click()
    until(lambda: f"{NEW}: download" in said(chromium) and " of " in said(chromium), "how far it is")
    assert by(chromium, "#pull-progress").is_displayed() and by(chromium, "#pull-stop").is_displayed()
    until(lambda: _here(tmp_path) > half - MOST_LOST, "half of it on the disk")
    by(chromium, "#pull-stop").click()
    until(lambda: said(chromium).startswith("Stopped."), "its stop")
    assert row(chromium, "spark-GGUF") == "" and not by(chromium, "#pull-stop").is_displayed()
    hub.stops_at.clear()
    goes_on.set()

    hub.ranges.clear()
    look_up(chromium, NEW)
    until(lambda: by(chromium, "#pull-begin").is_displayed(), "the facts")
    by(chromium, "#pull-begin").click()
    until(lambda: said(chromium) == f"{NEW} is here, and can be chosen above.", "its end")
    begins = [int(each.split("bytes=")[1][:-1]) for each in hub.ranges if each.endswith("-")]
    assert begins and max(begins) >= half - MOST_LOST, "the second download goes on where the first one was stopped"
    until(lambda: "unloaded" in row(chromium, "spark-GGUF"), "the new model in the list")
    press_in(chromium, "spark-GGUF", ".open")
    until(lambda: not by(chromium, "#models").is_displayed(), "the menu to close")
    assert "TTFT" in ask(chromium, "What is prefill?", 8)
    assert text_of(chromium, f"{LAST} .who") == "spark-GGUF"
    # The two answers of 404 are what the test asked for.
    assert [each for each in complaints(chromium) if "404" not in each] == []
