"""llama.cpp's own routes: /completion, /props, /apply-template."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.fakes import CONTEXT, MODEL
from tests.serve.harness import Live, serving
from twostroke.server.build import build_server


def test_a_whole_answer(live: Live) -> None:
    made = live.post("/completion", {"prompt": "hi", "return_tokens": True, "stop": ["ld"]}).json
    assert made["content"] == "hello world" and made["tokens"][:2] == list(b"he") and made["prompt"] == "hi"
    assert made["stop"] is True and made["stop_type"] == "eos" and made["tokens_evaluated"] == 2
    assert made["generation_settings"]["stop"] == ["ld"] and made["model"] == MODEL
    short = live.post("/completion", {"prompt": [104, 105], "n_predict": 3}).json
    assert short["content"] == "hel" and short["stop_type"] == "limit" and short["tokens_predicted"] == 3


def test_a_stream_ends_with_the_counts(live: Live) -> None:
    events = live.post("/completion", {"prompt": "hi", "stream": True, "n_probs": 2}).events
    assert "".join(event["content"] for event in events) == "hello world"
    assert [event["stop"] for event in events] == [*[False] * (len(events) - 1), True]
    assert events[0]["completion_probabilities"][0]["id"] == ord("h")
    assert events[-1]["tokens_predicted"] == 12 and events[-1]["timings"]["predicted_n"] == 12


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"dry_multiplier": -0.8}, "dry_multiplier"),
        ({"xtc_probability": 1.5}, "xtc_probability"),
        ({"mirostat": 1}, "mirostat"),
        ({"samplers": ["infill"]}, "samplers"),
        ({"n_probs": 6}, "n_probs"),
        ({"prompt": ["a", "b"]}, "prompt"),
    ],
)
def test_what_is_refused(live: Live, fields: dict[str, Any], param: str) -> None:
    reply = live.post("/completion", {"prompt": "hi", **fields})
    assert reply.status == 400 and reply.error["param"] == param


def test_samplers_that_are_off_pass(live: Live) -> None:
    off = {"dry_multiplier": 0.0, "xtc_probability": 0, "mirostat": 0, "typical_p": 1.0, "top_n_sigma": -1, "lora": []}
    reply = live.post("/completion", {"prompt": "hi", "cache_prompt": True, "id_slot": -1, **off})
    assert reply.status == 200 and "x-twostroke-ignored-fields" not in reply.headers


def test_props_and_the_prompt_of_messages(live: Live) -> None:
    props = live.get("/props").json
    assert props["default_generation_settings"]["n_ctx"] == CONTEXT and props["chat_template"] == "plain"
    made = live.post("/apply-template", {"messages": [{"role": "user", "content": "hi"}]}).json
    assert made == {"prompt": "user: hi\nassistant: "}
    assert live.post("/apply-template", {}).status == 400


def test_timings_of_the_real_engine() -> None:
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as live:
        asked = {"prompt": "A fox", "n_predict": 8, "temperature": 0}
        made = live.post("/completion", asked).json
        timings = made["timings"]
        assert timings["predicted_n"] == made["tokens_predicted"] and timings["prompt_n"] + timings["cache_n"] > 0
        assert timings["predicted_ms"] > 0 and timings["predicted_per_second"] > 0
        same = live.complete(prompt="A fox", max_tokens=8, temperature=0).json
        assert same["choices"][0]["text"] == made["content"]
