"""Without any flag a server guesses, and its streams have the text that they have without guesses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.harness import Live, serving
from tests.speculate.test_real_engine import AllOfThem
from twostroke.server.build import build_server


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A server as a user starts it, without a setting for guesses in the environment."""
    monkeypatch.delenv("TWOSTROKE_SPECULATE")
    monkeypatch.setattr("twostroke.assembly.guessing.guesses.GuessLimiter", AllOfThem)
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as made:
        yield made


def test_a_stream_has_the_same_text_and_usage_with_guesses_and_without(live: Live) -> None:
    asked = {
        "messages": [{"role": "user", "content": "what is a kv cache"}],
        "max_tokens": 80,
        "temperature": 0,
        "ignore_eos": True,
    }
    told = {way: live.chat(**asked, **fields).json for way, fields in (("off", {"speculate": "off"}), ("default", {}))}
    streamed = live.chat(**asked, stream=True, stream_options={"include_usage": True}).events
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in streamed[:-1] if e["choices"])
    assert told["off"]["choices"] == told["default"]["choices"]
    assert told["off"]["choices"][0]["message"]["content"] == text
    assert told["off"]["usage"]["completion_tokens"] == streamed[-2]["usage"]["completion_tokens"] == 80
    guessed = [
        line for line in live.get("/metrics").body.decode().splitlines() if "accepted_draft_tokens_total" in line
    ]
    assert any(float(line.split()[-1]) > 0 for line in guessed if not line.startswith("#"))
