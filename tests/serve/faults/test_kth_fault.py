"""The 1st, 2nd, 3rd ... call that can fail while a request is served fails, until one request passes without reaching
it.

Whatever k is, that request ends with an error or not at all, the door and the engine are empty, and the next one is
served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.fakes import CONTEXT, ByteTokenizer, FakeEngine, PlainTemplate, fake_parts
from tests.serve.harness import serving, wait_until

MOST = 200
SECRET = "secret words of an exception"


class Kth:
    """Counts the calls of everything that it wraps. Call number k raises."""

    def __init__(self) -> None:
        self.calls, self.fails_at = 0, 0
        self.kind: type[BaseException] = RuntimeError

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.fails_at:
                raise self.kind(SECRET)
            return real(*args, **kwargs)

        return counted


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, ValueError, OSError])
@pytest.mark.parametrize("stream", [False, True])
def test_every_call_may_fail_and_only_its_request_feels_it(stream: bool, kind: type[BaseException]) -> None:
    kth, engine = Kth(), FakeEngine("hello")
    kth.kind = kind
    tokenizer, template = ByteTokenizer(), PlainTemplate()
    for owner, names in (
        (tokenizer, ("encode_rendered", "token_bytes")),
        (template, ("render",)),
        (engine, ("check", "gauges", "_delta")),
    ):
        for name in names:
            setattr(owner, name, kth.wrap(getattr(owner, name)))
    parts = fake_parts(engine, tokenizer=tokenizer, template=template)
    door = parts.admission.door
    for name in ("enter", "_charge"):
        setattr(door, name, kth.wrap(getattr(door, name)))
    assert CONTEXT > 100
    failures = 0
    with serving(parts) as live:
        for k in range(1, MOST):
            kth.calls, kth.fails_at = 0, k
            reply = live.chat(stream=stream, logprobs=True, top_logprobs=2, max_tokens=6)
            wait_until(lambda: engine.live == 0 and door.in_flight == 0, f"rest after a fault in call {k}")
            reached = kth.calls >= k  # calls may come after the client has its answer
            kth.fails_at = 0
            assert SECRET.encode() not in reply.body, "an exception's text has reached a client"
            if reached:
                failures += 1
                failed = reply.status >= 500 or b'"code":"internal_error"' in reply.body
                late = k == kth.calls  # after the answer was complete
                assert failed or late, f"call {k} failed and no client got an error: {reply}"
            assert (door.queued_requests, door.queued_tokens) == (0, 0)
            whole = live.chat(max_tokens=6)
            assert whole.status == 200 and whole.json["choices"][0]["message"]["content"] == "hello"
            if not reached:
                break
        else:
            raise AssertionError("it never passes")
    assert failures > 8
