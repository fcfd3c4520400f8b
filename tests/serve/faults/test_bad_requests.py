"""Every wrong request is a 400 that names the field, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.fakes import CONTEXT, VOCAB, fake_parts
from tests.serve.harness import Live
from tests.tiers import examples
from twostroke.server.errors import HttpProblem
from twostroke.server.prompts import chat_call, completion_call
from twostroke.types.errors import InvalidRequest

USER = [{"role": "user", "content": "hi"}]

BOTH: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": -1}, "n"),
    ({"n": 129}, "n"),
    ({"n": 10**30}, "n"),
    ({"n": "1"}, "n"),
    ({"n": True}, "n"),
    ({"n": 1.5}, "n"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": -1}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"seed": 2**70}, "seed"),
    ({"seed": "x"}, "seed"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x" * 257]}, "stop"),
    ({"stop": [1]}, "stop[0]"),
    ({"stop_token_ids": [VOCAB]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": list(range(1025))}, "stop_token_ids"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"-5": 1}}, "logit_bias"),
    ({"logit_bias": {str(VOCAB): 1}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"stream": "yes"}, "stream"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"cache_salt": "x" * 257}, "cache_salt"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": "json_object"}, "response_format"),
    ({"priority": -1}, "priority"),
    ({"priority": 101}, "priority"),
    ({"ttft_s": 1.0}, "ttft_s"),  # the fake engine keeps no objectives
    ({"itl_s": -1.0}, "itl_s"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "response_format"),
    ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
    ({"response_format": {"type": "json_object"}, "min_tokens": 3}, "min_tokens"),
    ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
    ({"guided_json": "x" * 65537}, "guided_json"),
    ({"guided_json": []}, "guided_json"),
    ({"guided_regex": "a" * 2049}, "guided_regex"),
    ({"guided_regex": 5}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["a", 5]}, "guided_choice"),
    ({"guided_choice": ["a"] * 4097}, "guided_choice"),
    ({"guided_grammar": ""}, "guided_grammar"),
    ({"guided_whitespace_pattern": ".*"}, "guided_whitespace_pattern"),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
    ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
    ({"skip_special_tokens": False}, "skip_special_tokens"),
    ({"model": 7}, "model"),
    ({"model": 5}, "model"),
]
CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": "x" * CONTEXT}]}, "messages"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"logprobs": 3}, "logprobs"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"tools": [{"type": "function", "function": {"name": "f g"}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": each}} for each in (True, False)]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(1025)]}, "tools"),
    (
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": "x" * 70_000}}}],
            "tool_choice": "required",
        },
        "tools",
    ),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"functions": [{}]}, "functions[0]"),
    ({"functions": [{"name": "f g"}]}, "functions"),
    ({"functions": [{"name": "f"}], "tools": [{"type": "function", "function": {"name": "f"}}]}, "functions"),
    ({"functions": [{"name": "f"}], "function_call": "required"}, "function_call"),
    ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call"),
    ({"functions": [{"name": "f"}], "function_call": {}}, "function_call"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {}}, "audio"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"chat_template": "{{ 1 }}"}, "chat_template"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
]
BEAMS: list[tuple[dict[str, Any], str]] = [
    ({}, "best_of"),
    ({"best_of": 65}, "best_of"),
    ({"best_of": 4, "max_tokens": 0}, "max_tokens"),
    ({"best_of": 4, "temperature": 0.7}, "temperature"),
    ({"best_of": 4, "top_p": 0.5}, "top_p"),
    ({"best_of": 4, "top_k": 3}, "top_k"),
    ({"best_of": 4, "min_p": 0.1}, "min_p"),
    ({"best_of": 4, "speculate": "ngram"}, "speculate"),
    ({"best_of": 4, "length_penalty": 11}, "length_penalty"),
    ({"best_of": 4, "early_stopping": "sometimes"}, "early_stopping"),
    ({"best_of": 4, "early_stopping": 1}, "early_stopping"),
]
COMPLETION: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", ""]}, "prompt"),
    ({"prompt": [[1], []]}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": [VOCAB]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [10**30]}, "prompt"),
    ({"prompt": [[1, VOCAB]], "echo": True}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt"),
    ({"prompt": [[1, "a"]]}, "prompt[0][1]"),
    ({"prompt": [1.5]}, "prompt[0]"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": ["a"] * 65}, "prompt"),
    ({"prompt": ["a"] * 64, "n": 9}, "n"),
    ({"prompt": "x" * CONTEXT}, "prompt"),
    ({"logprobs": 6}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"best_of": 0}, "best_of"),
    ({"n": 3, "best_of": 2}, "best_of"),
    ({"prompt": ["a"] * 64, "best_of": 9}, "best_of"),
    ({"length_penalty": 2.0}, "length_penalty"),
    ({"early_stopping": True}, "early_stopping"),
    *(({"use_beam_search": True, **fields}, name) for fields, name in BEAMS),
    ({"suffix": "end"}, "suffix"),
]


def checked(reply: Any, param: str | None, live: Live) -> dict[str, Any]:
    assert reply.status == 400, reply
    error: dict[str, Any] = reply.error
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param, error
    assert live.get("/health").status == 200
    return error


def _name(value: Any) -> str:
    return json.dumps(value)[:40]


@pytest.mark.parametrize(("fields", "param"), BOTH + CHAT, ids=_name)
def test_chat(live: Live, fields: dict[str, Any], param: str) -> None:
    checked(live.chat(**fields), param, live)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"stream_options": {"include_usage": True}}, False),
        ({"tools": [{"type": "web_search"}]}, True),
        ({"messages": [{"role": "assistant", "function_call": 5}]}, True),
    ],
    ids=_name,
)
def test_what_other_servers_take_is_answered_and_what_was_changed_is_named(
    live: Live, fields: dict[str, Any], changed: bool
) -> None:
    reply = live.chat(**fields)
    assert reply.status == 200, reply
    assert ("x-twostroke-warnings" in reply.headers) == changed, reply.headers


@pytest.mark.parametrize(("fields", "param"), BOTH + COMPLETION, ids=_name)
def test_completions(live: Live, fields: dict[str, Any], param: str) -> None:
    checked(live.complete(**fields), param, live)


def test_missing_fields_are_named(live: Live) -> None:
    checked(live.post("/v1/chat/completions", {"model": "x"}), "messages", live)
    checked(live.post("/v1/completions", {"model": "x"}), "prompt", live)


def test_too_long_has_openais_code(live: Live) -> None:
    reply = live.complete(prompt="x" * CONTEXT)
    assert reply.status == 400
    assert reply.error["code"] == "context_length_exceeded"
    assert f"maximum context length is {CONTEXT} tokens" in reply.error["message"]


def test_unknown_model_is_404(live: Live) -> None:
    for reply in (live.chat(model="gpt-5"), live.complete(model="gpt-5"), live.get("/v1/models/gpt-5")):
        assert reply.status == 404
        assert reply.error["code"] == "model_not_found"
        assert "org/fake-model" in reply.error["message"]


def test_paths_and_methods_that_are_not_there(live: Live) -> None:
    for path in ("/page", "/v1", "/v2/completions", "/../etc/passwd"):
        reply = live.get(path)
        assert (reply.status, reply.error["code"]) == (404, "not_found")
    reply = live.get("/v1/completions")
    assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "POST"
    assert live.post("/health", {}).status == 405
    assert live.call("HEAD", "/health").status == 200


NEUTRAL: dict[str, Any] = {
    "response_format": {"type": "text"},
    "skip_special_tokens": True,
    "use_beam_search": False,
    "top_k": -1,
    "logit_bias": {},
    "stop": [],
    "metadata": {"a": "b"},
    "user": "me",
    "service_tier": "auto",
    "some_future_field": {"x": [1]},
}


def test_neutral_values_hints_and_unknown_fields_pass(live: Live) -> None:
    chat = {"tools": [], "tool_choice": "auto", "modalities": ["text"], "parallel_tool_calls": True, "store": False}
    chat |= {"reasoning_effort": "none", "verbosity": "medium", "prediction": {"type": "content", "content": "x"}}
    assert live.chat(**NEUTRAL, **chat).status == 200
    assert live.complete(**NEUTRAL, best_of=1, suffix="").status == 200


def test_every_optional_field_may_be_null(live: Live) -> None:
    from twostroke.server.api.schema import ChatRequest, CompletionRequest

    chat = {name: None for name in ChatRequest.__struct_fields__ if name not in ("model", "messages")}
    assert live.chat(**chat).status == 200
    plain = {name: None for name in CompletionRequest.__struct_fields__ if name not in ("model", "prompt")}
    assert live.complete(**plain).status == 200


def test_rare_tokens_are_left_out_when_neither_request_nor_model_sets_a_limit() -> None:
    parts = fake_parts()
    plain = {"model": parts.serving.served_name, "messages": USER}
    limits: tuple[dict[str, Any], ...] = ({"top_p": 1}, {"top_k": -1}, {"min_p": 0})
    for more, min_p in (({}, 0.1), ({"temperature": 0.7}, 0.1), *((each, 0.0) for each in limits)):
        params = chat_call(json.dumps({**plain, **more}).encode(), parts.serving).prompts[0].params
        assert (params.min_p, params.top_p, params.top_k) == (min_p, 1.0, 0)
    beams = chat_call(json.dumps({**plain, "use_beam_search": True, "n": 2}).encode(), parts.serving).prompts[0].params
    assert beams.use_beam_search and beams.min_p == 0.0


def test_fields_reach_the_engine_and_defaults_fill_gaps() -> None:
    parts = fake_parts(defaults={"temperature": 0.6, "top_k": 20})
    call = completion_call(
        json.dumps(
            {"model": parts.serving.served_name, "prompt": "x", "seed": 7, "top_k": 3, "cache_salt": "s", "priority": 2}
        ).encode(),
        parts.serving,
    )
    params = call.prompts[0].params
    assert (params.temperature, params.top_k, params.seed, params.max_tokens) == (0.6, 3, 7, 16)
    assert call.prompts[0].cache_salt == "s" and call.prompts[0].priority == 2
    body = {
        "model": parts.serving.served_name,
        "messages": USER,
        "max_tokens": 9,
        "max_completion_tokens": 5,
        "stop": "x",
        "stop_token_ids": [1],
        "ignore_eos": True,
        "min_tokens": 2,
        "logit_bias": {"5": -100},
        "temperature": 0,
    }
    params = chat_call(json.dumps(body).encode(), parts.serving).prompts[0].params
    assert (params.max_tokens, params.stop, params.stop_token_ids) == (5, ("x",), (1,))
    assert (params.ignore_eos, params.min_tokens, params.logit_bias) == (True, 2, {5: -100})
    assert params.greedy and params.top_k == 20


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = sorted({name for fields, _ in BOTH + CHAT + COMPLETION for name in fields} - {"model"})


@settings(max_examples=examples(400), deadline=None)
@given(fields=st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4), chat=st.booleans())
def test_no_json_value_in_any_field_is_anything_but_a_call_or_a_400(fields: dict[str, Any], chat: bool) -> None:
    parts = fake_parts()
    base = {"model": parts.serving.served_name, "messages": USER, "prompt": "hi"}
    read = chat_call if chat else completion_call
    try:
        call = read(json.dumps(base | fields).encode(), parts.serving)
    except (InvalidRequest, HttpProblem) as error:
        assert not isinstance(error, HttpProblem) or error.problem.status == 400
    else:
        assert call.prompts
