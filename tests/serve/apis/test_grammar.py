"""Structured output over HTTP: the spellings of clients, faults as 400, and hostile grammars next to honest
requests."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import openai
import pydantic
import pytest
from openai import OpenAI

from tests.serve.harness import Live, serving, wait_until
from tests.serve.shown.test_metrics import scrape
from tests.tiers import fewer
from twostroke.server.build import build_server

ASK: Any = [{"role": "user", "content": "What is prefill?"}]
EXPLODING = {"allOf": [{"pattern": f".*{chr(97 + i)}.*{chr(98 + i)}.{{5}}"} for i in range(20)]}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}


def content(reply: Any) -> str:
    assert reply.status == 200, reply
    text: str = reply.json["choices"][0]["message"]["content"]
    return text


def ask(spark: Live, **fields: Any) -> Any:
    body = {"model": "spark", "messages": ASK, "temperature": 1.5, "max_tokens": 120, "seed": 4, **fields}
    return spark.post("/v1/chat/completions", body)


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
    ],
)
def test_schemas_in_the_spellings_of_clients(fields: dict[str, Any], spark: Live) -> None:
    value = json.loads(content(ask(spark, **fields)))
    assert set(value) == {"ok", "n"} and isinstance(value["ok"], bool) and 0 <= value["n"] <= 9


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_regex": "[0-9]{3}-[a-f]+"}, "[0-9]{3}-[a-f]+"),
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"),
        ({"guided_choice": ["one", "two"]}, "one|two"),
        ({"structured_outputs": {"choice": ["one", "two"]}}, "one|two"),
        ({"guided_grammar": 'start: "x" NUMBER\nNUMBER: /[0-9]{2}/'}, "x[0-9]{2}"),
        ({"structured_outputs": {"grammar": 'root ::= "a" | "b" "c"'}}, "a|bc"),
        ({"guided_json": {"type": "null"}}, "null"),
    ],
)
def test_the_other_forms(fields: dict[str, Any], pattern: str, spark: Live) -> None:
    assert re.fullmatch(pattern, content(ask(spark, **fields)))


def test_fields_that_ask_for_nothing(spark: Live) -> None:
    nothing: dict[str, Any] = {"response_format": {"type": "text"}, "structured_outputs": {}, "guided_regex": None}
    assert content(ask(spark, **nothing)) == content(ask(spark))
    assert content(ask(spark, structured_outputs={"json_object": False})) == content(ask(spark))


class Verdict(pydantic.BaseModel):
    kind: Literal["compute-bound", "memory-bound"]
    sure: bool


def test_the_openai_package_parses_its_own_models(client: OpenAI) -> None:
    made = client.chat.completions.parse(
        model="spark", messages=ASK, response_format=Verdict, max_tokens=80, temperature=1.0, seed=2
    )
    parsed = made.choices[0].message.parsed
    assert parsed is not None and parsed.kind in ("compute-bound", "memory-bound")


class Person(pydantic.BaseModel):
    """Its schema does not forbid other keys, and small models went on inventing some until max_tokens."""

    name: Annotated[str, pydantic.Field(max_length=12)]
    age: int
    tags: Annotated[list[Annotated[str, pydantic.Field(max_length=8)]], pydantic.Field(max_length=2)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_small_model_comes_to_the_end_of_a_plain_schema(temperature: float, spark: Live) -> None:
    for seed in range(10):
        fields = {"guided_json": Person.model_json_schema(), "temperature": temperature, "seed": seed}
        reply = ask(spark, **fields, max_tokens=300)
        assert reply.json["choices"][0]["finish_reason"] == "stop"
        Person.model_validate_json(content(reply))


def test_streamed_and_whole_are_the_same_in_form_too(client: OpenAI) -> None:
    settings: Any = {"model": "spark", "messages": ASK, "seed": 9, "max_tokens": 60, "temperature": 1.2}
    settings["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    whole = client.chat.completions.create(**settings).choices[0].message.content
    chunks = client.chat.completions.create(**settings, stream=True)
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == whole


def test_completions_take_them_too(client: OpenAI) -> None:
    made = client.completions.create(
        model="spark", prompt=["a", "b"], n=2, max_tokens=9, extra_body={"guided_regex": "[0-9]{4}"}
    )
    assert len(made.choices) == 4
    assert all(re.fullmatch("[0-9]{4}", choice.text) and choice.finish_reason == "stop" for choice in made.choices)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"guided_regex": "(a+"}, "unclosed"),
        ({"guided_regex": "(a)\\1"}, "backreference"),
        ({"structured_outputs": {"regex": "a(?=b)"}}, "look-around"),
        ({"guided_json": EXPLODING}, "too much time or memory"),
        ({"guided_json": {"type": "strin"}}, "strin"),
        ({"response_format": {"type": "json_object", "schema": {"$ref": "#/nowhere"}}}, "nowhere"),
        ({"guided_grammar": "start: nothing"}, "nothing"),
        ({"guided_json": {"type": "integer", "minimum": 2**63}}, "64 bits"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_is_a_400_that_names_the_field(fields: dict[str, Any], words: str, stream: bool, spark: Live) -> None:
    reply = ask(spark, **fields, stream=stream)
    assert reply.status == 400
    assert reply.error["param"] == next(iter(fields))
    assert re.search(words, reply.error["message"])
    assert spark.get("/health").status == 200


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a{1000}){1000}", "(a|a)*c", ".*a.{200}", "(x?){99}y"])
def test_patterns_that_hung_other_servers_are_patterns_like_any_other(pattern: str, spark: Live) -> None:
    reply = ask(spark, guided_regex=pattern, max_tokens=20)
    assert reply.status == 200 and reply.json["choices"][0]["finish_reason"] in ("stop", "length")


def test_others_stream_on_while_a_hostile_grammar_is_compiled(spark: Live, client: OpenAI) -> None:
    """The engine's loop does not wait for the compiler, and neither do requests without a grammar."""
    refused: list[float] = []

    def attack(number: int) -> None:
        asked = ask(spark, guided_json={"title": f"{number}", **EXPLODING})
        assert asked.status == 400
        refused.append(time.monotonic())

    attacks = fewer(3, quick=2)
    threads = [threading.Thread(target=attack, args=(number,)) for number in range(attacks)]
    for thread in threads:
        thread.start()
    finished: list[float] = []
    while len(refused) < attacks:
        assert content(ask(spark, max_tokens=5, temperature=0)) is not None
        finished.append(time.monotonic())
    for thread in threads:
        thread.join()
    between = [moment for moment in finished if refused[0] < moment < refused[-1]]
    assert between, "an answer came while a later grammar was still at work"


@pytest.mark.daily
@pytest.mark.slow
def test_more_grammars_than_may_wait_are_503_with_retry_after(spark: Live) -> None:
    statuses: list[int] = []
    retries: list[str | None] = []

    def attack(number: int) -> None:
        reply = ask(spark, guided_json={"title": f"crowd {number}", **EXPLODING})
        statuses.append(reply.status)
        retries.append(reply.headers.get("retry-after") if reply.status == 503 else "none needed")

    threads = [threading.Thread(target=attack, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {400, 503}
    assert all(retries)


def test_a_fresh_server_answers_all_that_ask_for_the_same_form_at_once() -> None:
    """No process for grammars runs yet, so that all twenty wait for the first compilation."""
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as fresh:
        with ThreadPoolExecutor(20) as pool:
            asked = [pool.submit(ask, fresh, guided_json=SCHEMA, seed=seed, max_tokens=250) for seed in range(20)]
            replies = [each.result() for each in asked]
    assert [reply.status for reply in replies] == [200] * 20
    assert all(set(json.loads(content(reply))) == {"ok", "n"} for reply in replies)


def test_the_openai_package_sees_the_fault(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="spark", messages=ASK, extra_body={"guided_regex": "["})
    assert caught.value.param == "guided_regex"


HEAVY = {"guided_regex": "(.{1,50}){1,50}", "temperature": 2.0, "seed": 1, "max_tokens": 60}


def at_rest(spark: Live) -> dict[str, float]:
    wait_until(lambda: scrape(spark)["twostroke_requests_running"] == 0, "rest")
    return scrape(spark)


@pytest.mark.parametrize("stream", [False, True])
def test_one_that_becomes_too_heavy_is_a_coded_error_for_its_own_client_alone(spark: Live, stream: bool) -> None:
    before, plain = at_rest(spark), {"temperature": 0, "max_tokens": 40}
    alone = content(ask(spark, **plain))
    with ThreadPoolExecutor(3) as pool:
        beside = [pool.submit(ask, spark, **plain) for _ in range(2)]
        reply = ask(spark, **HEAVY, stream=stream)
        assert [content(each.result()) for each in beside] == [alone, alone]
    if stream:
        assert reply.status == 200 and reply.events[-1] == "[DONE]"
        assert any(event["choices"][0]["delta"].get("content") for event in reply.events[:-2]), "it had begun"
        assert all(event["choices"][0]["finish_reason"] is None for event in reply.events[:-2])
        error = reply.events[-2]["error"]
    else:
        assert reply.status == 400
        error = reply.error
    assert (error["code"], error["param"], error["type"]) == (
        "grammar_too_heavy",
        "guided_regex",
        "invalid_request_error",
    )
    assert "InternalError" not in error["message"], "the library's own words stay here"
    now = at_rest(spark)
    faults = "twostroke_request_faults_total{code=grammar_too_heavy}"
    assert now[faults] - before.get(faults, 0) == 1
    ended = "twostroke_requests_finished_total{reason=error}"
    assert now[ended] - before.get(ended, 0) == 1
    gauges = ("requests_running", "requests_waiting", "calls_in_flight", "queued_requests", "kv_pages_used")
    assert {name: now[f"twostroke_{name}"] for name in gauges} == dict.fromkeys(gauges, 0)


def test_one_that_becomes_too_heavy_in_the_other_apis(spark: Live) -> None:
    heavy = {"type": "string", "pattern": "^(.{1,50}){1,50}$"}
    shared: dict[str, Any] = {"model": "spark", "stream": True}
    asked = {"input": "What is prefill?", "temperature": 2.0, "seed": 1, "max_output_tokens": 60}
    form = {"text": {"format": {"type": "json_schema", "name": "a", "schema": heavy}}}
    with OpenAI(base_url=spark.url + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as whole:
            client.responses.create(model="spark", extra_body={**asked, **form}, input="What is prefill?")
        assert whole.value.code == "grammar_too_heavy"
        *_, last = client.responses.create(**shared, extra_body={**asked, **form}, input="What is prefill?")
        assert last.type == "response.failed" and last.response.error.code == "grammar_too_heavy"
    fields = {
        "max_tokens": 60,
        "temperature": 1.0,
        "output_config": {"format": {"type": "json_schema", "schema": heavy}},
    }
    reply = spark.post("/v1/messages", {**shared, **fields, "messages": ASK})
    event, data = reply.body.decode().strip().split("\n\n")[-1].split("\n")
    assert event == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["type"] == "invalid_request_error"
