"""The embedded model by both packages: scores compared with transformers, forced tools, both streams, one answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.cluster.in_process import spark_server
from tests.serve.harness import Live
from twostroke.assets import spark_path

ASK: Any = [{"role": "user", "content": "What is prefill?"}]
CITY: Any = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "maximum": 9, "minimum": 0},
    },
    "required": ["city", "days"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]
TEXTS = ["Prefill reads the whole prompt at once.", "Decode makes one token after another, and is slow.", "a"]


@pytest.fixture(scope="module", params=["engine", "front"])
def spark(request: pytest.FixtureRequest) -> Iterator[Live]:
    options = {
        "kv_memory": "20MB",
        "threads": 2,
        "weights": "f32",
        "kv_format": "f32",
        "max_step_tokens": 16,
        "max_sequences": 5,
    }
    with spark_server(request.param, options) as live:
        yield live


@pytest.fixture
def messages(spark: Live) -> Iterator[Anthropic]:
    with Anthropic(base_url=spark.url, api_key="none", max_retries=0) as made:
        yield made


def test_prompt_logprobs_are_those_of_transformers(client: OpenAI, spark: Live) -> None:
    """The request is lm-eval's: ids, echo, logprobs 1. The prompt has the longest of 16 chunks of 16 rows."""
    import torch
    import transformers

    judge: Any = transformers.AutoModelForCausalLM.from_pretrained(spark_path(), dtype=torch.float32)
    prompts = [spark.parts.serving.tokenizer.encode_prompt(text) for text in [*TEXTS, " ".join(TEXTS * 8)]]
    made = client.completions.create(
        model="spark", prompt=prompts, max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234
    )
    for ids, choice in zip(prompts, made.choices, strict=True):
        with torch.no_grad():
            expected = torch.log_softmax(judge(torch.tensor([ids])).logits[0].double(), -1)
        logprobs: Any = choice.logprobs
        assert len(logprobs.token_logprobs) == len(ids) + 1 and logprobs.token_logprobs[0] is None
        for place, token_id in enumerate(ids[1:]):
            got, top = logprobs.token_logprobs[place + 1], logprobs.top_logprobs[place + 1]
            assert got == pytest.approx(float(expected[place, token_id]), abs=1e-4)
            assert (got == max(top.values())) == (int(expected[place].argmax()) == token_id)


def test_scoring_a_cached_prompt_gives_the_same_bits(client: OpenAI) -> None:
    asked: Any = {"model": "spark", "prompt": TEXTS[1] * 3, "logprobs": 2, "echo": True, "max_tokens": 0}
    first = client.completions.create(**asked)
    client.completions.create(model="spark", prompt=TEXTS[1] * 3, max_tokens=4)
    assert client.completions.create(**asked).choices[0].logprobs == first.choices[0].logprobs
    more: Any = {"n": 2, "max_tokens": 3, "extra_body": {"ignore_eos": True}}
    several = client.completions.create(**{**asked, **more})
    scores = [choice.logprobs and (choice.logprobs.token_logprobs or [])[:-3] for choice in several.choices]
    assert scores[0] == scores[1] == (first.choices[0].logprobs and first.choices[0].logprobs.token_logprobs)


def fits(arguments: str) -> bool:
    value = json.loads(arguments)
    return set(value) == {"city", "days"} and len(value["city"]) <= 12 and 0 <= value["days"] <= 9


def test_a_named_tool_is_called_with_arguments_that_fit(client: OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    for seed in range(3):
        asked: Any = {"model": "spark", "messages": ASK, "tools": TOOLS, "tool_choice": choice, "seed": seed}
        made = client.chat.completions.create(**asked, temperature=1.5, max_tokens=200).choices[0]
        assert made.finish_reason == "tool_calls" and made.message.content is None
        (call,) = made.message.tool_calls or []
        assert call.type == "function" and call.function.name == "weather" and fits(call.function.arguments)
        with client.chat.completions.stream(**asked, temperature=1.5, max_tokens=200) as stream:
            final = stream.get_final_completion().choices[0].message
        (streamed,) = final.tool_calls or []
        assert streamed.function.arguments == call.function.arguments


def test_required_calls_one_of_the_tools(client: OpenAI, messages: Anthropic) -> None:
    made = client.chat.completions.create(
        model="spark", messages=ASK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=200
    )
    (call,) = made.choices[0].message.tool_calls or []
    assert call.type == "function" and call.function.name in ("weather", "clock")
    tools: Any = [{"name": "weather", "input_schema": CITY}]
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    with messages.messages.stream(
        model="spark", max_tokens=200, messages=ASK, tools=tools, tool_choice=choice
    ) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    (block,) = final.content
    assert block.type == "tool_use" and fits(json.dumps(block.input))


def test_strict_tools_leave_the_text_free(client: OpenAI) -> None:
    """A grammar that only describes calls changes nothing in an answer without any."""
    strict: Any = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    asked: Any = {"model": "spark", "messages": ASK, "temperature": 0, "max_tokens": 40}
    free = client.chat.completions.create(**asked, tools=TOOLS[:1]).choices[0].message
    held = client.chat.completions.create(**asked, tools=strict).choices[0].message
    assert free.content and held.content == free.content


def test_all_apis_give_the_same_answer(client: OpenAI, messages: Anthropic) -> None:
    chat = client.chat.completions.create(model="spark", messages=ASK, temperature=0, max_tokens=40)
    response = client.responses.create(model="spark", input="What is prefill?", temperature=0, max_output_tokens=40)
    asked: Any = {"model": "spark", "max_tokens": 40, "messages": ASK, "extra_body": {"temperature": 0}}
    message: Any = messages.messages.create(**asked)
    with messages.messages.stream(**asked) as stream:
        streamed = stream.get_final_text()
    text = chat.choices[0].message.content
    assert text and text == response.output_text == message.content[0].text == streamed
    counted = messages.messages.count_tokens(model="spark", messages=ASK)
    assert chat.usage and counted.input_tokens == chat.usage.prompt_tokens


def test_tokenizer_routes_agree_with_the_prompt(client: OpenAI, spark: Live) -> None:
    info = spark.get("/tokenizer_info").json
    assert info["eos_token"] == "<|end|>" and info["bos_token"] == "<|bos|>"
    made = spark.post("/tokenize", {"messages": ASK}).json
    usage = client.chat.completions.create(model="spark", messages=ASK, max_tokens=1).usage
    assert usage and made["count"] == usage.prompt_tokens
    text = TEXTS[0]
    ids = spark.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]
    assert spark.post("/detokenize", {"tokens": ids}).json == {"prompt": text, "content": text}
