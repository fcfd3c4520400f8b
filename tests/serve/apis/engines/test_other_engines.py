"""Fields of llama.cpp, SGLang and vLLM that change the answer are honoured, or refused with their own name."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.serve.fakes import MODEL, fake_parts
from tests.serve.harness import Live
from tests.serve.shown.test_metrics import scrape
from tests.tiers import fewer, thinned
from twostroke.server.prompts import chat_call, completion_call

ASK: Any = [{"role": "user", "content": "What is prefill?"}]
YES_NO = 'root ::= answer\nanswer ::= "yes" | "no"\n'
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}


def chat(client: OpenAI, **fields: Any) -> Any:
    own = {"max_tokens": 120} if "n_predict" not in fields else {}
    return client.chat.completions.create(
        model="spark", messages=ASK, temperature=fields.pop("temperature", 1.0), seed=3, **own, extra_body=fields
    ).choices[0]


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"grammar": YES_NO}, "yes|no"),
        ({"ebnf": YES_NO}, "yes|no"),
        ({"regex": "[0-9]{3}-[a-f]{2}"}, "[0-9]{3}-[a-f]{2}"),
        ({"json_schema": SCHEMA}, r'\{\s*"n"\s*:\s*[0-9]\s*\}'),
        ({"json_schema": json.dumps(SCHEMA)}, r'\{\s*"n"\s*:\s*[0-9]\s*\}'),
    ],
)
def test_forms_of_the_answer(fields: dict[str, Any], pattern: str, client: OpenAI) -> None:
    choice = chat(client, **fields)
    assert re.fullmatch(pattern, choice.message.content) and choice.finish_reason == "stop"
    made = client.completions.create(model="spark", prompt="a", max_tokens=120, seed=3, extra_body=fields)
    assert re.fullmatch(pattern, made.choices[0].text)


@pytest.mark.parametrize("name", ["grammar", "regex", "ebnf", "json_schema"])
def test_an_empty_form_asks_for_nothing(name: str, client: OpenAI) -> None:
    assert chat(client, **{name: ""}, temperature=0) == chat(client, temperature=0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"grammar": "root ::= nothing"}, "grammar"),
        ({"ebnf": "root ::= ("}, "ebnf"),
        ({"regex": "(a"}, "regex"),
        ({"json_schema": {"type": "strin"}}, "json_schema"),
        ({"json_schema": 5}, "json_schema"),
        ({"grammar": YES_NO, "regex": "a"}, "regex"),
        ({"n_predict": -3}, "n_predict"),
        ({"n_predict": 0}, "n_predict"),
        ({"max_tokens": 5, "n_predict": 6}, "n_predict"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"repeat_penalty": 1.1, "repetition_penalty": 1.2}, "repeat_penalty"),
        ({"repeat_last_n": -2}, "repeat_last_n"),
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": "word"}, "bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
        ({"allowed_token_ids": [5], "regex": "a"}, "allowed_token_ids"),
    ],
)
def test_what_cannot_be_honoured_is_a_400_with_its_own_name(fields: dict[str, Any], param: str, spark: Live) -> None:
    reply = spark.post("/v1/chat/completions", {"model": "spark", "messages": ASK, **fields})
    assert reply.status == 400 and reply.error["param"] == param


def test_n_predict_bounds_the_answer(client: OpenAI, spark: Live) -> None:
    made = client.completions.create(model="spark", prompt="a b c", extra_body={"n_predict": 7, "ignore_eos": True})
    assert made.usage is not None and made.usage.completion_tokens == 7
    for unlimited in thinned((-1, -2), "unlimited", fewer(2, quick=1)):
        body = {"model": "spark", "prompt": "The cache", "temperature": 0, "n_predict": unlimited, "ignore_eos": True}
        usage = spark.post("/v1/completions", body).json["usage"]
        assert usage["total_tokens"] == spark.parts.serving.context_tokens
    assert chat(client, n_predict=5, ignore_eos=True).finish_reason == "length"


def test_penalties_reach_the_sampler_as_llama_cpp_means_them() -> None:
    def params(**fields: Any) -> Any:
        body = {"model": MODEL, "messages": ASK, **fields}
        return chat_call(json.dumps(body).encode(), fake_parts().serving).prompts[0].params

    assert (params(repeat_penalty=1.3).repetition_penalty, params(repeat_penalty=1.3).repetition_window) == (1.3, 64)
    assert params(repeat_penalty=1.3, repeat_last_n=-1).repetition_window is None
    assert params(repeat_penalty=1.3, repeat_last_n=5).repetition_window == 5
    assert params(repetition_penalty=1.3).repetition_window is None
    assert params(n_predict=9).max_tokens == 9 and params(n_predict=-1).max_tokens is None
    assert params(n_predict=9, max_tokens=9).max_tokens == 9
    body = {"model": MODEL, "prompt": "x", "bad_words": ["no"], "allowed_token_ids": [5, 6]}
    made = completion_call(json.dumps(body).encode(), fake_parts().serving).prompts[0].params
    assert made.bad_token_ids == ((110, 111),) and made.allowed_token_ids == (5, 6) and made.bad_words == ()


def test_repeat_penalty_changes_the_answer(client: OpenAI) -> None:
    plain, penalized = (chat(client, temperature=0, **f).message.content for f in ({}, {"repeat_penalty": 1.8}))
    assert plain != penalized


def test_bad_words_are_not_written(client: OpenAI) -> None:
    plain = chat(client, temperature=0).message.content
    words = sorted(set(re.findall(r"[a-z]{4,}", plain)))[:6]
    assert words
    held = chat(client, temperature=0, bad_words=words).message.content
    assert held != plain


def test_only_allowed_tokens_are_written(client: OpenAI, spark: Live) -> None:
    ids = spark.post("/tokenize", {"model": "spark", "prompt": "abc"}).json["tokens"]
    made = client.completions.create(
        model="spark", prompt="x", max_tokens=12, logprobs=0, temperature=1.0, extra_body={"allowed_token_ids": ids}
    )
    text = spark.post("/tokenize", {"model": "spark", "prompt": made.choices[0].text, "add_special_tokens": False})
    assert set(made.choices[0].text) <= set("abc") and text.json["count"] >= 1
    assert made.usage is not None and made.usage.completion_tokens == 12


def test_a_request_that_forbids_everything_is_a_400_of_its_own(client: OpenAI, spark: Live) -> None:
    ids = spark.post("/tokenize", {"model": "spark", "prompt": "a", "add_special_tokens": False}).json["tokens"]
    faults = "twostroke_request_faults_total{code=no_token_left}"
    before = scrape(spark).get(faults, 0)
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, allowed_token_ids=ids[-1:], bad_words=["a"])
    assert caught.value.code == "no_token_left"
    assert scrape(spark)[faults] == before + 1
    assert chat(client, temperature=0).message.content
