"""A server whose answers a test writes and lets through token by token, with the facts that the page asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.serve.fakes import CONTEXT, MODEL, FakeEngine, Turnstile, fake_parts
from tests.serve.harness import Live, serving
from twostroke.server.live.view import EngineView
from twostroke.types.output import Prompt

ABOUT = {
    "model": MODEL,
    "page_tokens": 16,
    "settings": {"context": CONTEXT, "kv_tokens": 4096, "weights": "int8", "kv_format": "bf16", "threads": 1},
    "limits": {"measured": False, "source": "none", "read_bytes_per_s": 1e9, "flops_per_s": 1e12, "unit": "FLOPs"},
}


@dataclass(frozen=True, slots=True)
class Scripted:
    """live: the server. engine: its `answer` is what it writes next."""

    live: Live
    engine: FakeEngine

    @property
    def last(self) -> Prompt:
        """What the page asked last."""
        return self.engine.prompts[-1]

    @property
    def last_text(self) -> str:
        """The prompt as the template wrote it."""
        return bytes(self.last.token_ids).decode()

    def hold(self) -> Turnstile:
        """From now on, tokens wait until they are let in."""
        gate = Turnstile()
        self.engine.gate = gate
        return gate

    def let(self, gate: Turnstile, tokens: int) -> None:
        """Lets `tokens` tokens in."""
        gate.let(self.live.loop, tokens)


@contextmanager
def scripted(answer: str = "hello world", **changes: Any) -> Iterator[Scripted]:
    """A server with the fake engine. changes: changes of its parts."""
    engine = FakeEngine(answer)
    parts = fake_parts(engine, **{"view": EngineView(about=ABOUT), **changes})
    with serving(parts) as live:
        yield Scripted(live, engine)
