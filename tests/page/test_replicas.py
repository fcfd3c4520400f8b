"""The engine side of the page on a front: its replicas instead of steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.cluster.test_pages_travel import served
from tests.page.browser import by, complaints, text_of, until
from tests.page.steps import ask, open_page
from tests.serve.harness import Live, serving
from twostroke.server.build_front import build_front

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def front() -> Iterator[Live]:
    with served("both") as (_, address), build_front("spark", {}, [address], "s", lambda text: None) as built:
        with serving(built.parts) as live:
            yield live


def test_a_front_shows_its_replicas_and_no_empty_pictures(chromium: webdriver.Chrome, front: Live) -> None:
    open_page(chromium, front)
    ask(chromium, "What does the cache hold?", 40)
    until(lambda: "tokens, " in text_of(chromium, "#lanes li:first-child button"), "an ended lane")
    row = text_of(chromium, "#replicas tbody tr")
    assert "both one" in row and "ready" in row and "whole answers" in row and "%" in row
    assert "1 replica" in text_of(chromium, "#model")
    for hidden in ("#steps-figure", "#panel-roofline", "#panel-predicted"):
        assert not by(chromium, hidden).is_displayed()
    assert complaints(chromium) == []


@pytest.mark.daily
def test_the_last_answer_is_explained_with_the_parts_of_a_front(chromium: webdriver.Chrome, front: Live) -> None:
    open_page(chromium, front)
    ask(chromium, "What does the cache hold?", 40)
    until(lambda: by(chromium, "#last-why").is_displayed(), "the last answer")
    by(chromium, "#last-why").click()
    until(lambda: "Computed at both one" in text_of(chromium, "#explain-body"), "the explanation")
    assert complaints(chromium) == []
