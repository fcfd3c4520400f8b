"""Long texts: streams go on while one is tokenized, short ones do not wait, and a failure becomes an answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from tests.serve.fakes import ByteTokenizer, fake_parts
from tests.serve.harness import WAIT_S, Live, serving, wait_until
from tests.text.kinds import byte_level
from twostroke.text.special_tokens import SpecialTokens
from twostroke.text.tokenizer import Tokenizer

LONG = "é" * 3_000_000
TURN_S = 0.002


def as_utf8(**fields: Any) -> bytes:
    """The body in UTF-8. With escapes the text would be larger than a body may be."""
    return json.dumps({"model": "spark", **fields}, ensure_ascii=False).encode()


@dataclass
class Turns:
    """Counts an event loop's turns. A loop that is held up does not count."""

    count: int = 0
    during: list[int] = field(default_factory=list)  # the turns while each long text was tokenized
    stopped: bool = False

    async def run(self) -> None:
        while not self.stopped:
            self.count += 1
            await asyncio.sleep(TURN_S)

    def watch(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Calls `work`, and records the turns during its call."""

        def watched(*args: Any, **named: Any) -> Any:
            before = self.count
            try:
                return work(*args, **named)
            finally:
                self.during.append(self.count - before)

        return watched


def test_streams_and_the_loop_go_on_while_a_long_text_is_tokenized(
    spark: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns()
    tokenizer: Any = spark.parts.serving.tokenizer
    library = tokenizer._library
    long_texts = 0

    class Watched:
        """The real library. Tokenizing takes most of a second, so a free loop turns hundreds of times, and one that is
        held up does not turn at all."""

        def encode_batch_fast(self, texts: list[str], **named: Any) -> Any:
            nonlocal long_texts
            long_texts += len(texts[0]) >= len(LONG)
            return turns.watch(library.encode_batch_fast)(texts, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

    monkeypatch.setattr(tokenizer, "_library", Watched())
    running = asyncio.run_coroutine_threadsafe(turns.run(), spark.loop)
    answers: list[int] = []

    def stream() -> None:
        fields = {"max_tokens": 1000, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        answers.append(spark.complete(**fields).events[-2]["usage"]["completion_tokens"])

    streaming = threading.Thread(target=stream)
    streaming.start()
    try:
        reply = spark.post("/v1/messages/count_tokens", as_utf8(messages=[{"role": "user", "content": LONG}]))
        assert reply.json["input_tokens"] > len(LONG)
    finally:
        turns.stopped = True
        running.result(WAIT_S)
        streaming.join(WAIT_S)
    assert long_texts == 1
    assert max(turns.during) >= 3, turns.during
    assert answers == [1000]


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(spark: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Any = spark.parts.serving.tokenizer

    class Never:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was called")

    assert tokenizer._bound is not None  # made before the library is taken away
    monkeypatch.setattr(tokenizer, "_library", Never())
    for reply in (
        spark.post("/v1/chat/completions", as_utf8(messages=[{"role": "user", "content": LONG}])),
        spark.post("/v1/completions", as_utf8(prompt=LONG)),
    ):
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
        assert "or more" in reply.error["message"]
    assert spark.complete(prompt="x" * 70_000).error["code"] == "context_length_exceeded"


class Waiting(ByteTokenizer):
    """A library in which tokenizing a long text takes until the test ends it."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()

    def count_rendered(self, text: str, **named: Any) -> int:
        if len(text) > 64 * 1024:
            self.begun.release()
            assert self.go_on.wait(WAIT_S)
        return super().count_rendered(text)


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_long_texts_do_not_stand_before_short_ones(size: int) -> None:
    tokenizer = Waiting()
    with serving(fake_parts(tokenizer=tokenizer)) as live:
        body = {"model": live.model, "messages": [{"role": "user", "content": "a" * size}]}
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(live.post("/v1/messages/count_tokens", body).status)

        askers = [threading.Thread(target=ask) for _ in range(8)]
        for asker in askers:
            asker.start()
        try:
            assert tokenizer.begun.acquire(timeout=WAIT_S)
            wait_until(lambda: live.parts.admission.bodies.held_bytes >= 8 * size, "all eight bodies")
            assert live.chat().status == 200
            assert statuses == []
        finally:
            tokenizer.go_on.set()
            for asker in askers:
                asker.join(WAIT_S)
        assert statuses == [200] * 8


def test_a_tokenizer_that_panics_is_a_json_error_and_the_server_goes_on() -> None:
    library = byte_level()
    catastrophic = pre_tokenizers.Split(Regex(r"(x+x+)+y"), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([catastrophic, pre_tokenizers.ByteLevel(use_regex=False)])
    tokenizer = Tokenizer(library, SpecialTokens({}, frozenset()))
    with serving(fake_parts(tokenizer=tokenizer)) as live:
        hostile = "x" * 50
        for path, fields in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": hostile}]}),
            ("/v1/completions", {"prompt": hostile}),
            ("/v1/responses", {"input": hostile}),
            ("/tokenize", {"prompt": hostile}),
        ):
            reply = live.post(path, {"model": live.model, **fields})
            assert (reply.status, reply.error["code"]) == (500, "tokenizer_failed"), path
            assert reply.headers["x-should-retry"] == "false"
            assert "Onig" not in reply.error["message"]
        body = {"model": live.model, "max_tokens": 5, "messages": [{"role": "user", "content": hostile}]}
        assert live.post("/v1/messages", body).json["error"]["type"] == "api_error"
        assert live.get("/health").status == 200
        assert live.post("/tokenize", {"prompt": "fine"}).status == 200
