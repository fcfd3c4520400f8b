"""Events of several models say each change once, in the form of llama.cpp's router."""

from __future__ import annotations

from twostroke.distributed.fleet.loading import ModelState
from twostroke.server.several.events import ModelStatus, changes

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
