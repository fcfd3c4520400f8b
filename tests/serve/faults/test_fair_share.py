"""A request next to others that ask for much: it does not wait until one of them ends."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import ExitStack

import pytest

from tests.serve.faults.test_connections import asked
from tests.serve.harness import WAIT_S, serving, wait_until
from twostroke.server.build import build_server
from twostroke.server.gate.lanes import Lanes


def test_a_request_is_answered_while_four_with_128_completions_run() -> None:
    settings = {"kv_memory": "24MB", "threads": 1, "max_sequences": 16}
    with build_server("spark", settings) as built, serving(built.parts) as live, ExitStack() as stack:
        many = []
        for _ in range(4):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S))
            connection.sendall(asked(live, n=128, max_tokens=300, ignore_eos=True, temperature=1.0))
            many.append(connection)
        gauges = built.parts.serving.engine.gauges
        wait_until(lambda: gauges().running == 16 and gauges().waiting > 400, "all of them in the engine")
        assert live.complete(max_tokens=4).status == 200
        assert gauges().waiting > 400, "none of the four has ended"


def test_a_short_body_waits_for_no_longer_one() -> None:
    async def read() -> str:
        lanes, held = Lanes(), threading.Event()
        try:
            waiting = [asyncio.ensure_future(lanes.run(60_000, held.wait)) for _ in range(48)]
            return await asyncio.wait_for(lanes.run(1_000, lambda: "read"), WAIT_S)
        finally:
            held.set()
            await asyncio.gather(*waiting)

    assert asyncio.run(read()) == "read"


FORMS = (
    {"response_format": {"type": "json_object"}},
    {"text": {"format": {"type": "text"}}},
    {"format": {"type": "object"}},
    {"output_format": {}},
    {"guided_regex": "a"},
    {"tools": [{"type": "custom", "custom": {"name": "a"}}]},
    {"tools": [{"type": "function", "function": {"name": "a", "strict": True}}]},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "any"}},
    b'{"respons\\u0065_format": {}}',
)
PLAIN = (
    {"messages": [{"role": "user", "content": "the grammar of \u00e9 is strict: true"}]},
    {"tools": [{"type": "function", "function": {"name": "a", "strict": False}}], "tool_choice": "auto"},
    b'{"prompt": "\\u00e9 \\u003c"}',
)


def raw(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.mark.parametrize("form", FORMS, ids=raw)
def test_a_plain_question_does_not_wait_for_forms(form: object) -> None:
    async def read() -> list[str]:
        lanes, held = Lanes(), threading.Event()
        try:
            waiting = [asyncio.ensure_future(lanes.read(raw(form), held.wait)) for _ in range(48)]
            return [await asyncio.wait_for(lanes.read(raw(each), lambda: "read"), WAIT_S) for each in PLAIN]
        finally:
            held.set()
            await asyncio.gather(*waiting)

    assert asyncio.run(read()) == ["read"] * len(PLAIN)
