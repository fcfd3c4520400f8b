"""llama.cpp's own routes, with their names and forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import CONTEXT, MODEL, ByteTokenizer, FakeEngine, fake_parts
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
        ({"mirostat": 3}, "mirostat"),
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


class Coder(ByteTokenizer):
    """A tokenizer with the tokens for filling in, which are bytes that no text has."""

    def id_of(self, token: str) -> int | None:
        named = {"<|fim_prefix|>": 1, "<|fim_suffix|>": 2, "<|fim_middle|>": 3, "<|repo_name|>": 4, "<|file_sep|>": 5}
        return named.get(token, super().id_of(token))


@pytest.fixture(scope="module")
def coder() -> Iterator[Live]:
    tokenizer: Any = Coder()
    with serving(fake_parts(tokenizer=tokenizer)) as live:
        yield live


def seen(live: Live) -> Any:
    return live.parts.serving.engine.prompts[-1]  # type: ignore[attr-defined]


def test_infill_makes_the_prompt_of_the_models_tokens(coder: Live) -> None:
    extra = [{"filename": "a.py", "text": "x"}]
    asked = {"input_prefix": "def ", "input_suffix": "end", "input_extra": extra, "prompt": "f"}
    made = coder.post("/infill", {**asked, "n_predict": 4}).json
    assert made["content"] == "hell" and made["stop_type"] == "limit" and made["timings"]["predicted_n"] == 4
    assert bytes(seen(coder).token_ids) == b"\x04twostroke\n\x05a.py\nx\x01def \x02end\x03f"
    assert {1, 2, 3, 4, 5} <= set(seen(coder).params.stop_token_ids)
    long = coder.post("/infill", {"input_prefix": "p" * 5000, "input_suffix": "s" * 5000})
    assert long.status == 200 and "was left out" in long.headers["x-twostroke-warnings"]
    assert coder.post("/infill", {"input_prefix": "a"}).error["param"] == "input_suffix"


def test_suffix_is_the_same_on_the_other_apis(coder: Live) -> None:
    for path, body in (
        ("/v1/completions", {"model": MODEL, "prompt": "def ", "suffix": "end"}),
        ("/api/generate", {"model": MODEL, "prompt": "def ", "suffix": "end", "stream": False}),
    ):
        assert coder.post(path, body).status == 200
        assert bytes(seen(coder).token_ids) == b"\x01def \x02end\x03"
    assert "insert" in coder.post("/api/show", {"model": MODEL}).json["capabilities"]


def test_a_model_without_such_tokens_says_so(live: Live) -> None:
    reply = live.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert reply.status == 501 and "cannot fill in" in reply.error["message"]
    assert live.complete(suffix="b").error["param"] == "suffix"
    assert "insert" not in live.post("/api/show", {"model": MODEL}).json["capabilities"]


def test_tokenize_in_llama_cpps_form(live: Live) -> None:
    assert live.post("/tokenize", {"content": "hé"}).json == {"tokens": list("hé".encode())}
    pieces = live.post("/tokenize", {"content": "hé", "with_pieces": True, "add_special": True}).json["tokens"]
    assert pieces == [{"id": 104, "piece": "h"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]
    assert live.post("/detokenize", {"tokens": [104, 105]}).json["content"] == "hi"


def test_slots_and_names(live: Live) -> None:
    slots = live.get("/slots").json
    assert [each["id"] for each in slots] == list(range(len(slots))) and not slots[0]["is_processing"]
    assert slots[0]["n_ctx"] == CONTEXT
    assert live.post("/completions", {"prompt": "hi"}).json["content"] == "hello world"
    assert live.get("/props").json["default_generation_settings"]["params"]["dry_base"] == 1.75


def test_slots_refuse_where_none_is_free() -> None:
    engine = FakeEngine()
    engine.live = 3
    with serving(fake_parts(engine)) as live:
        assert [each["is_processing"] for each in live.get("/slots").json] == [True] * 3
        assert live.get("/slots?fail_on_no_slot=1").status == 503


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_timings_of_openais_answers_where_they_are_asked_for(live: Live, path: str) -> None:
    asked: Any = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "hi"}
    body = {"model": MODEL, **asked}
    assert "timings" not in live.post(path, body).json
    whole = live.post(path, {**body, "timings_per_token": True})
    assert whole.json["timings"]["predicted_n"] == 12 and "x-twostroke-ignored-fields" not in whole.headers
    events = live.post(path, {**body, "timings_per_token": True, "stream": True}).events
    timed = [event for event in events if event != "[DONE]" and "timings" in event]
    assert len(timed) == 1 and timed[0]["choices"][0]["finish_reason"] == "stop"
    assert timed[0]["timings"]["predicted_n"] == 12
