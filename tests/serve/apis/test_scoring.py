"""Echo with log probabilities, scoring without an answer, usage in every chunk: the rules of OpenAI and lm-eval."""

from __future__ import annotations

from typing import Any

from tests.serve.harness import Live

PROMPT = "abcd"


def test_echo_with_logprobs_puts_the_prompt_in_front(live: Live) -> None:
    choice = live.complete(prompt=PROMPT, echo=True, logprobs=1, max_tokens=2).json["choices"][0]
    logprobs = choice["logprobs"]
    assert choice["text"] == "abcdhe"
    assert logprobs["tokens"] == list("abcdhe")
    assert logprobs["token_logprobs"] == [None, -0.98, -0.99, -1.0, -0.5, -0.5]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][1] == {"x": -0.25, "b": -0.98}
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4, 5]


def test_scoring_alone(live: Live) -> None:
    made = live.complete(prompt=[list(PROMPT.encode()), [7]], echo=True, logprobs=0, max_tokens=0).json
    assert [c["text"] for c in made["choices"]] == [PROMPT, "\x07"]
    assert made["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.98, -0.99, -1.0]
    assert made["choices"][0]["logprobs"]["top_logprobs"][1] == {"b": -0.98}
    assert made["choices"][1]["logprobs"]["token_logprobs"] == [None]
    assert [c["finish_reason"] for c in made["choices"]] == ["length", "length"]
    assert made["usage"]["completion_tokens"] == 0


def test_streamed_echo_is_the_same_for_every_choice(live: Live) -> None:
    asked: dict[str, Any] = {"prompt": PROMPT, "echo": True, "logprobs": 1, "max_tokens": 3, "n": 2}
    whole = live.complete(**asked).json["choices"]
    joined: list[dict[str, Any]] = [{"text": "", "tokens": [], "token_logprobs": [], "text_offset": []} for _ in whole]
    for event in live.complete(**asked, stream=True).events[:-1]:
        for choice in event["choices"]:
            into = joined[choice["index"]]
            into["text"] += choice["text"]
            for key in ("tokens", "token_logprobs", "text_offset") if choice["logprobs"] else ():
                into[key] += choice["logprobs"][key]
    for choice, made in zip(whole, joined, strict=True):
        assert made["text"] == choice["text"]
        assert all(made[key] == choice["logprobs"][key] for key in ("tokens", "token_logprobs", "text_offset"))


def test_nothing_at_all_may_be_asked_for(live: Live) -> None:
    made = live.complete(max_tokens=0).json
    assert made["choices"][0] == {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}


def test_continuous_usage_counts_in_every_chunk(live: Live) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for reply in (live.chat(stream=True, stream_options=options), live.complete(stream=True, stream_options=options)):
        *chunks, last, done = reply.events
        assert done == "[DONE]" and last["choices"] == [] and last["usage"]["completion_tokens"] == 12
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts) and counts[0] == 1 and counts[-1] == 12
        assert all(chunk["choices"] for chunk in chunks)
    chunks = live.chat(stream=True, stream_options={"continuous_usage_stats": True}).events[:-1]
    assert all("usage" not in chunk for chunk in chunks)
