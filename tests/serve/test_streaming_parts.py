"""The code that makes a streamed token cheap gives the same bytes and the same behaviour as the simple way."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from uvicorn.protocols.http.flow_control import FlowControl

from twostroke.server.answering.begun import Begun
from twostroke.server.answering.lazy_timer import LazyTimer
from twostroke.server.api.messages_request import messages_call
from twostroke.server.api.responses_request import responses_call
from twostroke.server.api.shape import Counts, Shape
from twostroke.server.api.shapes.chat import ChatShape
from twostroke.server.api.shapes.completion import CompletionShape
from twostroke.server.api.shapes.messages import MessagesShape
from twostroke.server.api.shapes.responses import ResponsesShape
from twostroke.server.api.sse import Event, EventTemplate, raw_event
from twostroke.server.calls import Call
from twostroke.server.gate.protocol import ChunkConnection, ChunkWriter
from twostroke.server.prompts import chat_call, completion_call
from twostroke.server.serve import SWITCH_S, short_turns
from twostroke.server.serving import Serving
from twostroke.server.telemetry.gaps import Gaps
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob

from .fakes import FakeEngine, fake_parts
from .harness import serving, wait_until

BOUNDS = (0.001, 0.01, 0.1, 1.0)


CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
STREAMED: list[tuple[Callable[[bytes, Serving], Call], Callable[[Call, Serving], Shape], dict[str, Any]]] = [
    (chat_call, ChatShape, CHAT),
    (chat_call, ChatShape, {**CHAT, "stream_options": {"include_usage": True}}),
    (chat_call, ChatShape, {**CHAT, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    (chat_call, ChatShape, {**CHAT, "logprobs": True, "top_logprobs": 2}),
    (completion_call, CompletionShape, {"prompt": "hi"}),
    (completion_call, CompletionShape, {"prompt": "hi", "logprobs": 2}),
    (completion_call, CompletionShape, {"prompt": "hi", "echo": True}),
    (completion_call, CompletionShape, {"prompt": "hi", "echo": True, "logprobs": 1}),
    (messages_call, MessagesShape, CHAT),
    (responses_call, ResponsesShape, {"input": "hi"}),
    (responses_call, ResponsesShape, {"input": "hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]}),
]
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)


@pytest.mark.parametrize("case", range(len(STREAMED)))
@given(texts=st.lists(TEXTS, max_size=6), told=st.booleans())
def test_short_ways_of_shapes_have_the_bytes_of_the_whole(case: int, texts: list[str], told: bool) -> None:
    read, make, body = STREAMED[case]
    served = fake_parts().serving
    call = read(json.dumps({"model": served.served_name, "stream": True, **body}).encode(), served)
    short, long = make(call, served), make(call, served)
    asked = call.logprobs is not None
    used = 0
    for place, text in enumerate([*texts, "end"]):
        ids = tuple(text.encode()) if told else ()
        delta = Delta(
            request_id="r",
            index=0,
            text=text,
            token_ids=ids,
            logprobs=tuple(TokenLogprob(i, -0.5, ((i, -0.5), (7, -2.25))) for i in ids) if asked else (),
            finish_reason=FinishReason.LENGTH if place == len(texts) else None,
            prompt_logprobs=(TokenLogprob(105, -1.0),) if call.scores_prompt and not place else (),
        )
        counts = Counts(place, 3)
        made = short.text_event(0, delta)
        used += made is not None
        whole = b"".join(map(raw_event, long.events(0, delta, counts)))
        assert whole == (b"".join(map(raw_event, short.events(0, delta, counts))) if made is None else made)
    last = Counts(len(texts), 3)
    assert [*map(raw_event, short.last_events(last))] == [*map(raw_event, long.last_events(last))]
    takes_it = not (call.delivery.continuous_usage or call.scores_prompt)
    assert used >= takes_it * (len([*filter(None, texts)]) - 1)


def test_a_mark_that_stands_elsewhere_too_is_refused() -> None:
    for mark in ("a", "not there"):
        with pytest.raises(ValueError, match="mark"):
            EventTemplate(Event(None, {"text": "a", "other": "a", "more": "xa"}), mark)
    with pytest.raises(ValueError, match="mark"):
        EventTemplate(Event(None, {"text": "one", "other": "two"}), "two", "one")


@pytest.mark.parametrize(
    "route",
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi"}),
    ],
)
def test_streamed_chunks_have_the_same_keys_in_the_same_order(route: tuple[str, dict[str, Any]]) -> None:
    """The second chunk and later ones come from a template, unless usage changes with each. Both have the same form."""
    path, fields = route
    with serving(fake_parts(FakeEngine('say "é\u2028\\🙂"\n'))) as live:
        body = {"model": live.model, "stream": True, **fields}
        plain = live.post(path, body).events[:-1]
        usage = {"include_usage": True, "continuous_usage_stats": True}
        counted = live.post(path, {**body, "stream_options": usage}).events[:-2]
    assert len(plain) == len(counted) > 5
    for one, other in zip(plain, counted, strict=True):
        assert [*one, "usage"] == list(other)
        assert one["choices"] == other["choices"]
        assert [list(each) for each in one["choices"]] == [list(each) for each in other["choices"]]


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans())
def test_chunks_are_framed_as_h11_frames_them(pieces: list[bytes], sized: bool) -> None:
    length = [("content-length", str(sum(map(len, pieces))))] if sized else []
    sent = []
    for connection in (h11.Connection(h11.SERVER), ChunkConnection(h11.SERVER)):
        connection.receive_data(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        while type(connection.next_event()) is not h11.EndOfMessage:
            pass
        events = [h11.Response(status_code=200, headers=length), *(h11.Data(data=each) for each in pieces)]
        sent.append([connection.send(event) for event in (*events, h11.EndOfMessage())])
        assert connection.our_state is h11.DONE
    assert sent[0] == sent[1]


class Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.ends = list[bytes](), False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.ends


def test_a_body_writer_writes_while_the_body_goes_on_and_the_client_reads() -> None:
    async def main() -> None:
        connection, transport = ChunkConnection(h11.SERVER), Transport()
        flow = FlowControl(transport)
        writer = ChunkWriter(connection, transport, flow)
        connection.receive_data(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
        while type(connection.next_event()) is not h11.EndOfMessage:
            pass
        assert not writer.takes_now
        connection.send(h11.Response(status_code=200, headers=[]))
        assert writer.takes_now
        writer.write(b"data: 1\n\n")
        assert transport.written == [connection.send(h11.Data(data=b"data: 1\n\n"))]
        flow.pause_writing()
        assert not writer.takes_now
        flow.resume_writing()
        transport.ends = True
        assert not writer.takes_now
        transport.ends = False
        connection.send(h11.EndOfMessage())
        assert not writer.takes_now

    asyncio.run(main())


def test_a_fault_in_the_short_way_ends_the_stream_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(shape: ChatShape, index: int, delta: Delta) -> bytes | None:
        if delta.text == "w":
            raise EngineStopped("The device is gone.")
        return None

    monkeypatch.setattr(ChatShape, "text_event", broken)
    engine = FakeEngine("hello world")
    with serving(fake_parts(engine)) as live:
        body = {"model": live.model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        *pieces, problem, done = live.post("/v1/chat/completions", body).events
        assert "".join(each["choices"][0]["delta"]["content"] for each in pieces) == "hello "
        assert "not running" in problem["error"]["message"] and done == "[DONE]"
        wait_until(lambda: engine.live == 0, "the request ended")


@given(st.lists(st.lists(st.floats(0, 2), min_size=1, max_size=9), max_size=9), st.sampled_from(BOUNDS))
def test_gaps_count_as_prometheus_counts(steps: list[list[float]], edge: float) -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    gaps, known = Gaps("gap", "help", BOUNDS), Histogram("gap", "help", buckets=BOUNDS, registry=other)
    one.register(gaps)
    for values in [*steps, [edge, edge]]:
        gaps.observe(values)
        for value in values:
            known.observe(value)

    def lines(registry: CollectorRegistry) -> dict[str, float]:
        text = generate_latest(registry).decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in text if not line.startswith("#") and "_created" not in line]
        return {name: pytest.approx(float(value)) for name, value in pairs}

    assert lines(one) == lines(other)


async def _nothing(done: list[str]) -> None:
    done.append("nothing")


async def _wait(event: asyncio.Event, done: list[str]) -> None:
    try:
        await event.wait()
        await asyncio.sleep(0)
        done.append("waited")
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        done.append("cancelled")
        raise


async def _fail() -> None:
    raise KeyError("at once")


def test_work_that_was_begun_goes_on_and_can_be_cancelled() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        assert Begun(_nothing(done)).over
        with pytest.raises(KeyError):
            Begun(_fail())
        event = asyncio.Event()
        begun = Begun(_wait(event, done))
        assert not begun.over
        asyncio.get_running_loop().call_soon(event.set)
        await begun
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Begun(_wait(asyncio.Event(), done))
        return done

    assert asyncio.run(main()) == ["nothing", "waited", "cancelled"]


class Loop:
    """An event loop's timers, under a clock that the test sets."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, list[Any]()

    def time(self) -> float:
        return self.now

    def call_at(self, at_s: float, call: Callable[[], None]) -> Any:
        loop = self

        class Handle:
            cancelled = False

            def when(self) -> float:
                return at_s

            def cancel(self) -> None:
                self.cancelled = True

            def due(self) -> None:
                if not self.cancelled and loop.now >= at_s:
                    self.cancelled = True
                    call()

        self.calls.append(Handle())
        return self.calls[-1]

    def at(self, now: float) -> None:
        self.now = now
        for handle in list(self.calls):
            handle.due()


def test_a_lazy_timer_rings_when_it_was_set_to_last(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, rung = Loop(), list[float]()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    timer = LazyTimer(lambda: rung.append(loop.now))
    for tick in range(17):
        loop.at(tick / 4)
        timer.set(2.0)
    assert len(loop.calls) <= 4 and rung == []
    loop.at(5.5)
    assert rung == []
    loop.at(6.0)
    loop.at(9.0)
    assert rung == [6.0]
    timer.set(10.0)
    timer.set(1.0)  # earlier than the handle that the loop has
    loop.at(10.0)
    assert rung == [6.0, 10.0]
    timer.set(1.0)
    timer.clear()
    loop.at(12.0)
    timer.set(1.0)
    timer.close()
    loop.at(20.0)
    assert rung == [6.0, 10.0]


def test_turns_are_short_while_a_server_runs() -> None:
    before = sys.getswitchinterval()
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == before


def test_long_lists_of_ids_are_whole() -> None:
    text = "ab" * 20_000
    with serving(fake_parts()) as live:
        body = {"model": live.model, "prompt": text, "return_token_strs": True}
        got = live.post("/tokenize", body).json
        assert got["tokens"] == list(text.encode()) and "".join(got["token_strs"]) == text
        assert got["count"] == len(text)
        assert live.post("/tokenize", {**body, "prompt": "", "return_token_strs": False}).json["token_strs"] is None
