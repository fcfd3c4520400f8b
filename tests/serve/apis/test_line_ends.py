"""Readers that split text at Unicode's line ends, as `str.splitlines` and httpx do, read each answer as one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.harness import Live, serving
from twostroke.server.api.sse import Event, EventTemplate, line_json, new_mark, raw_event
from twostroke.types.output import Delta
from twostroke.types.request import FinishReason

ENDS = "\u2028 \u2029 \x85"
SAID = f"one{ENDS}two"
MESSAGES = [{"role": "user", "content": SAID}]
PATHS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": SAID, "echo": True, "logprobs": 2},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/responses": {"input": SAID, "instructions": SAID},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 90},
}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    engine = FakeEngine("\x85 abc")
    engine.last = Delta("", 0, SAID, (120,), finish_reason=FinishReason.STOP, num_output_tokens=9)
    with serving(fake_parts(engine)) as server:
        yield server


@pytest.mark.parametrize("path", PATHS)
def test_each_line_of_a_stream_is_whole(live: Live, path: str) -> None:
    reply = live.post(path, {"model": live.model, "stream": True, **PATHS[path]})
    assert reply.status == 200
    lines = reply.body.decode().splitlines()
    assert all(not line or line.startswith(("data: ", "event: ")) for line in lines), lines
    found = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert SAID in json.dumps(found, ensure_ascii=False)


@pytest.mark.parametrize("path", [*PATHS, "/tokenize"])
def test_a_whole_answer_is_one_line(live: Live, path: str) -> None:
    more = PATHS.get(path, {"prompt": SAID, "return_token_strs": True})
    reply = live.post(path, {"model": live.model, **more})
    assert reply.status == 200
    assert len(reply.body.decode().splitlines()) == 1


@pytest.mark.parametrize("path", PATHS)
def test_an_error_is_one_line(live: Live, path: str) -> None:
    reply = live.post(path, {**PATHS[path], "model": f"other{ENDS}"})
    assert reply.status == 404
    assert len(reply.body.decode().splitlines()) == 1


def test_the_value_is_the_same() -> None:
    for value in (SAID, {SAID: [SAID, "é€\u2027\u202a\x84"]}, "ascii", "\x1c\x1d\x1e\x0b\x0c\r\n"):
        raw = line_json(value)
        assert json.loads(raw) == value
        assert len(raw.decode().splitlines()) == 1
    mark = new_mark()
    assert EventTemplate(Event("a", {"text": mark}), mark).raw(SAID) == raw_event(Event("a", {"text": SAID}))
