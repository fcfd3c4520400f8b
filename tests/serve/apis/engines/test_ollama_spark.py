"""Ollama's API over the real engine: durations of the ledger, the same tokens as the other APIs, facts of a model."""

from __future__ import annotations

import json
from typing import Any

from ollama import Client

from tests.serve.harness import Live

USER: Any = [{"role": "user", "content": "Tell me of a fox."}]


def test_durations_are_parts_of_the_total(spark: Live) -> None:
    client = Client(host=spark.url)
    options = {"num_predict": 12, "temperature": 0}
    last: Any = list(client.chat("spark", USER, stream=True, options=options))[-1]
    whole = client.generate("spark", "Tell me of a fox.", options=options)
    for made in (last, whole):
        parts = made.load_duration + made.prompt_eval_duration + made.eval_duration
        assert 0 < made.prompt_eval_duration and 0 < made.eval_duration and parts <= made.total_duration
        assert made.eval_count <= 12 and made.prompt_eval_count > 0


def test_three_apis_give_the_same_text_for_the_same_seed(spark: Live) -> None:
    options = {"num_predict": 24, "seed": 7, "temperature": 0.9}
    ours = spark.post("/api/chat", {"model": "spark", "messages": USER, "stream": False, "options": options}).json
    openai = spark.chat(messages=USER, max_tokens=24, seed=7, temperature=0.9).json
    asked = {"model": "spark", "messages": USER, "max_tokens": 24, "seed": 7, "temperature": 0.9}
    anthropic = spark.post("/v1/messages", asked).json
    assert ours["message"]["content"] == openai["choices"][0]["message"]["content"] == anthropic["content"][0]["text"]
    assert ours["eval_count"] == openai["usage"]["completion_tokens"]


def test_a_context_goes_on_from_an_earlier_answer(spark: Live) -> None:
    client = Client(host=spark.url)
    first = client.generate("spark", "A fox.", options={"num_predict": 4})
    more = client.generate("spark", "And then?", context=first.context, options={"num_predict": 4})
    assert more.context is not None and list(more.context[: len(first.context or ())]) == list(first.context or ())


def test_a_schema_holds_the_answer(spark: Live) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    made = Client(host=spark.url).chat("spark", USER, format=schema, options={"temperature": 0})
    assert json.loads(made.message.content or "")["n"] in (1, 2)


def test_facts_of_the_model(spark: Live) -> None:
    shown = Client(host=spark.url).show("spark")
    info: Any = shown.modelinfo
    assert info["general.architecture"] == "llama" and info["llama.block_count"] == 5
    assert info["general.parameter_count"] > 1e6 and shown.template
    listed = spark.get("/api/tags").json["models"][0]
    assert listed["size"] > 1e6 and len(listed["digest"]) == 64 and listed["details"]["parameter_size"].endswith("M")
