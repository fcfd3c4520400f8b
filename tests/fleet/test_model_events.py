"""Events of several models report each change once, in the form of llama.cpp's router."""

from __future__ import annotations

from typing import Any

import pytest

from twostroke.distributed.fleet.loading import ModelState
from twostroke.server.several import news as news_module
from twostroke.server.several.news import ModelStatus, News, changes, whole_share
from twostroke.server.several.pulls import Pull

ABSENT, READY = ModelStatus(ModelState.ABSENT), ModelStatus(ModelState.READY)


def test_a_load_and_its_end() -> None:
    begun, half = ModelStatus(ModelState.LOADING), ModelStatus(ModelState.LOADING, 0.5)
    assert changes({"a": ABSENT}, {"a": ABSENT}) == []
    assert changes({"a": ABSENT}, {"a": begun}) == [
        {"model": "a", "event": "model_status", "data": {"status": "loading"}}
    ]
    (progress,) = changes({"a": begun}, {"a": half})
    assert progress["event"] == "status_change" and progress["data"]["status"] == "loading"
    assert progress["data"]["progress"] == {"stages": ["weights"], "current": "weights", "value": 0.5}
    assert [each["event"] for each in changes({"a": ABSENT}, {"a": half})] == ["model_status", "status_change"]
    assert changes({"a": half, "b": READY}, {"a": READY, "b": READY}) == [
        {"model": "a", "event": "status_change", "data": {"status": "loaded"}}
    ]


def test_a_failure_says_why_and_leaving_is_told_when_it_has_left() -> None:
    failed = ModelStatus(ModelState.FAILED, why="no such file")
    assert changes({"a": ABSENT}, {"a": failed}) == [
        {"model": "a", "event": "status_change", "data": {"status": "failed", "error": "no such file"}}
    ]
    assert changes({"a": READY}, {"a": ModelStatus(ModelState.DRAINING)}) == []
    assert changes({"a": READY}, {"a": ABSENT}) == [
        {"model": "a", "event": "status_change", "data": {"status": "unloaded"}}
    ]


def told(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["model"], each["data"].get("status", each["event"])) for each in events]


def test_every_reader_gets_each_change_once_however_short_it_lasted() -> None:
    news = News()
    news.note({"a": ABSENT}, None)
    early = news.end
    for state in (ModelState.LOADING, ModelState.READY, ModelState.DRAINING, ModelState.ABSENT, ModelState.LOADING):
        news.note({"a": ModelStatus(state)}, None)
        news.note({"a": ModelStatus(state)}, None)
    middle, seen = news.end, news.since(early)
    assert told(seen) == [("a", "loading"), ("a", "loaded"), ("a", "unloaded"), ("a", "loading")]
    news.note({"a": READY}, Pull("b", "finished"))
    assert told(news.since(middle)) == [("a", "loaded"), ("b", "download_finished")]
    assert news.since(early) == seen + news.since(middle)
    assert news.since(news.end) == []


def test_a_reader_that_is_far_behind_gets_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "MOST_KEPT", 10)
    news = News()
    for _ in range(20):
        news.note({"a": READY, "b": ABSENT}, Pull("c", done=1))
        news.note({"a": ABSENT, "b": READY}, Pull("c", done=2))
    assert told(news.since(0)) == [("a", "unloaded"), ("b", "loaded"), ("c", "download_progress")]
    assert len(news.since(news.end - 10)) == 10


def test_shares_of_a_load_are_whole_hundredths() -> None:
    assert [whole_share(share) for share in (0.0, 0.004, 0.019, 0.5, 1.0, 1.2)] == [0.0, 0.0, 0.01, 0.5, 1.0, 1.0]
