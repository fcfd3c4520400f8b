"""Whole and streamed answers, byte for byte as clients need them."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.serve.fakes import FakeEngine, Turnstile, fake_parts
from tests.serve.harness import WAIT_S, Live, Reply, serving
from twostroke.types.errors import BackendError, EngineStopped, InvalidRequest, Overloaded
from twostroke.types.output import Delta
from twostroke.types.request import FinishReason


def test_chat_has_exactly_the_required_keys(live: Live) -> None:
    reply = live.chat()
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    made = reply.json
    assert set(made) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}
    assert made["object"] == "chat.completion"
    assert made["model"] == live.model
    assert isinstance(made["created"], int)
    assert made["id"].startswith("chatcmpl-")
    assert made["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello world", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    prompt = len("user: hi\nassistant: ")
    assert made["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 12,
        "total_tokens": prompt + 12,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def test_chat_stream_without_usage(live: Live) -> None:
    reply = live.chat(stream=True)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"
    *chunks, done = reply.events
    assert done == "[DONE]"
    assert len({c["id"] for c in chunks}) == 1
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert all("usage" not in c and len(c["choices"]) == 1 for c in chunks)
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas[0] == {"role": "assistant", "content": "h"}
    assert all("role" not in d for d in deltas[1:])
    assert "".join(d.get("content", "") for d in deltas) == "hello world"
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 11 + ["stop"]
    assert all(set(c["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"} for c in chunks)


@pytest.mark.parametrize("path", ["chat", "complete"])
def test_usage_comes_last_and_alone(live: Live, path: str) -> None:
    *chunks, last, done = getattr(live, path)(stream=True, stream_options={"include_usage": True}, max_tokens=4).events
    assert done == "[DONE]"
    assert all(c["usage"] is None and c["choices"] for c in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_n_is_interleaved_with_one_end_each(live: Live) -> None:
    *chunks, _done = live.chat(stream=True, n=3).events
    choices = [c["choices"][0] for c in chunks]
    assert [c["index"] for c in choices[:6]] == [0, 1, 2, 0, 1, 2]
    for index, text in enumerate(["hello world", "HELLO WORLD", "hello world"]):
        own = [c for c in choices if c["index"] == index]
        assert "".join(c["delta"].get("content", "") for c in own) == text
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["stop"]
        assert [("role" in c["delta"]) for c in own] == [True] + [False] * (len(own) - 1)


def test_completions_of_several_prompts_keep_their_places(live: Live) -> None:
    made = live.complete(prompt=["ab", "cd"], n=2, max_tokens=5, echo=True).json
    assert made["object"] == "text_completion"
    assert [(c["index"], c["text"], c["finish_reason"]) for c in made["choices"]] == [
        (0, "abhello", "length"),
        (1, "abHELLO", "length"),
        (2, "cdhello", "length"),
        (3, "cdHELLO", "length"),
    ]
    assert made["usage"]["prompt_tokens"] == 4
    assert made["usage"]["completion_tokens"] == 20
    assert made["usage"]["prompt_tokens_details"]["cached_tokens"] == 6


@pytest.mark.parametrize("prompt", [[104, 105], [[104, 105]], "hi", ["hi"]])
def test_every_prompt_shape(live: Live, prompt: object) -> None:
    made = live.complete(prompt=prompt, echo=True, max_tokens=2).json
    assert made["choices"][0]["text"] == "hihe"
    *chunks, _ = live.complete(prompt=prompt, echo=True, max_tokens=2, stream=True).events
    assert [c["choices"][0]["text"] for c in chunks] == ["hih", "e"]


def test_completions_make_sixteen_tokens_unless_asked() -> None:
    with serving(fake_parts(FakeEngine("x" * 40))) as live:
        assert live.complete().json["usage"]["completion_tokens"] == 16
        assert live.complete(max_tokens=None).json["usage"]["completion_tokens"] == 16
        near_end = live.complete(prompt="p" * 1020).json
        assert near_end["usage"]["completion_tokens"] == 4
        assert live.chat().json["usage"]["completion_tokens"] == 41


def test_chat_logprobs(live: Live) -> None:
    made = live.chat(logprobs=True, top_logprobs=2, max_tokens=2).json["choices"][0]["logprobs"]
    assert made["refusal"] is None
    first, second = made["content"]
    assert first == {
        "token": "h",
        "logprob": -0.5,
        "bytes": [104],
        "top_logprobs": [
            {"token": "h", "logprob": -0.5, "bytes": [104]},
            {"token": "x", "logprob": -1.5, "bytes": [120]},
        ],
    }
    assert second["token"] == "e"
    bare = live.chat(logprobs=True, max_tokens=1).json["choices"][0]["logprobs"]["content"]
    assert bare[0]["top_logprobs"] == []
    *chunks, _ = live.chat(logprobs=True, stream=True).events
    tokens = [e["token"] for c in chunks for e in c["choices"][0]["logprobs"]["content"]]
    assert tokens == [*"hello world", "<end>"]


def test_completion_logprobs(live: Live) -> None:
    made = live.complete(logprobs=5, max_tokens=3).json["choices"][0]["logprobs"]
    assert made["tokens"] == ["h", "e", "l"]
    assert made["token_logprobs"] == [-0.5] * 3
    assert made["text_offset"] == [0, 1, 2]
    best = {"h": -0.5, "x": -1.5, "bytes:\\xe9": -2.5, "bytes:\\xea": -3.5, "y": -9999.0}
    assert made["top_logprobs"][0] == best
    assert max(made["top_logprobs"][1].values()) == made["token_logprobs"][1]
    zero = live.complete(logprobs=0, max_tokens=1).json["choices"][0]["logprobs"]
    assert zero["top_logprobs"] == [{"h": -0.5}]
    *chunks, _ = live.complete(logprobs=0, max_tokens=3, n=2, stream=True).events
    offsets = [c["choices"][0]["logprobs"]["text_offset"] for c in chunks]
    assert offsets == [[0], [0], [1], [1], [2], [2]]


def test_held_back_text_sends_no_empty_chunk_but_no_logprob_is_lost() -> None:
    class Holding(FakeEngine):
        def _deltas(self, prompt):  # type: ignore[no-untyped-def]
            made = super()._deltas(prompt)
            empty = Delta(made[1].request_id, 0, "", made[1].token_ids, made[1].logprobs, num_output_tokens=2)
            return [made[0], empty, *made[2:]]

    with serving(fake_parts(Holding("abc"))) as live:
        texts = [c["choices"][0]["delta"] for c in live.chat(stream=True).events[:-1]]
        assert texts == [{"role": "assistant", "content": "a"}, {"content": "c"}, {}]
        chunks = live.chat(stream=True, logprobs=True).events[:-1]
        assert len(chunks) == 4
        assert chunks[1]["choices"][0]["delta"] == {}


def test_heartbeats_while_nothing_comes() -> None:
    engine = FakeEngine("ab")
    engine.gate = gate = Turnstile()
    limits = fake_parts().admission.limits.__class__(heartbeat_s=0.03)
    with serving(fake_parts(engine, limits=limits)) as live:
        connection = HTTPConnection("127.0.0.1", live.port, timeout=WAIT_S)
        asked = {"model": live.model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(asked))
        answer = connection.getresponse()
        begun = b"".join(answer.readline() for _ in range(6))
        assert begun == b": waiting\n\n" * 3
        gate.let(live.loop)
        reply = Reply(answer.status, {}, begun + answer.read())
        connection.close()
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in reply.events[:-1]) == "ab"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequest("No.", param="seed"), 400, None),
        (EngineStopped("Gone."), 503, "engine_stopped"),
        (Overloaded("Too late.", retry_after_s=2.1), 503, "overloaded"),
        (BackendError("secret detail"), 500, "internal_error"),
        (RuntimeError("secret detail"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_byte_are_statuses(error: Exception, status: int, code: str, stream: bool) -> None:
    engine = FakeEngine()
    engine.error = error
    with serving(fake_parts(engine)) as live:
        reply = live.chat(stream=stream)
        assert reply.status == status
        assert reply.error["code"] == code
        assert b"secret" not in reply.body
        assert ("retry-after" in reply.headers) == (status == 503)
        engine.error = None
        assert live.chat().status == 200
        assert engine.live == 0


def test_errors_within_a_stream_are_an_event_then_done() -> None:
    engine = FakeEngine()
    engine.error, engine.error_after = RuntimeError("secret detail"), 3
    with serving(fake_parts(engine)) as live:
        reply = live.chat(stream=True)
        assert reply.status == 200
        *chunks, error, done = reply.events
        assert len(chunks) == 3
        assert error["error"]["code"] == "internal_error"
        assert done == "[DONE]"
        assert b"secret" not in reply.body


@pytest.mark.parametrize(
    ("reason", "status"), [(FinishReason.ERROR, 500), (FinishReason.ABORT, 503)], ids=["error", "abort"]
)
def test_a_request_that_the_engine_ended_is_an_error_not_an_answer(reason: FinishReason, status: int) -> None:
    engine = FakeEngine()
    engine.last = Delta("", 0, "", finish_reason=reason, error="secret detail")
    with serving(fake_parts(engine)) as live:
        reply = live.complete()
        assert reply.status == status
        assert b"secret" not in reply.body
        events = live.complete(stream=True).events
        assert "error" in events[-2]
        assert all(c["choices"][0]["finish_reason"] is None for c in events[:-2])


def test_a_stream_that_ends_without_a_reason_is_an_error() -> None:
    engine = FakeEngine()
    engine.last = Delta("", 0, "")
    with serving(fake_parts(engine)) as live:
        assert live.chat().status == 500
        assert "error" in live.chat(stream=True).events[-2]


def test_a_refusal_says_in_whole_seconds_when_to_come_again() -> None:
    engine = FakeEngine()
    engine.error = Overloaded("Too late.", retry_after_s=2.1, why="12 requests wait.", fix="Try again in 2 s.")
    with serving(fake_parts(engine)) as live:
        reply = live.chat()
        assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (503, "overloaded", "3")
        assert "12 requests wait" in reply.error["message"]


def test_the_last_message_can_be_continued(live: Live) -> None:
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "one, two,"}]
    asked = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    reply = live.chat(**asked)
    assert reply.status == 200
    engine = live.parts.serving.engine
    assert isinstance(engine, FakeEngine)
    engine_prompt = engine.prompts[-1]
    assert bytes(engine_prompt.token_ids).decode() == "user: Count.\nassistant: one, two,"
    assert reply.json["choices"][0]["message"]["content"] == "hello world"
    assert live.post("/tokenize", asked).json["tokens"] == list(engine_prompt.token_ids)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": True}, "messages"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"continue_final_message": "yes"}, "continue_final_message"),
        ({"continue_final_message": True, "messages": [{"role": "assistant", "content": ""}]}, "messages"),
    ],
)
def test_what_cannot_be_continued_is_refused(live: Live, fields: dict[str, Any], param: str) -> None:
    reply = live.chat(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)
