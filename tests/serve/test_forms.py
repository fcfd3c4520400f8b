"""Forms of answers over HTTP: after a thought, with a message where a constraint is not enforced, and next to hard
ones."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.serve.apis.tools.test_tools import serve
from tests.serve.harness import Live
from tests.tiers import TIER
from twostroke.text.talk.catalog import FORMATS

HARD = {"allOf": [{"pattern": f".*{chr(97 + i)}.*{chr(98 + i)}.{{5}}"} for i in range(20)]}
LONG = {
    "type": "object",
    "properties": {"v": {"type": "string", "maxLength": 524288}},
    "required": ["v"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["So."]}}}
ASK: Any = {"model": "spark", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}


def grammar_of(live: Live) -> Any:
    engine: Any = live.parts.serving.engine
    return engine.prompts[-1].params.grammar


@pytest.mark.parametrize("stream", [False, True])
def test_a_form_follows_the_thought(stream: bool) -> None:
    with serve("<think>\nhm\n</think>\n\nSo.", FORMATS["hermes"]) as live:
        reply = live.chat(response_format=FORM, stream=stream)
        thought = grammar_of(live).thought
        assert (thought.opening, thought.closing) == ("<think>", "</think>")
        if not stream:
            message = reply.json["choices"][0]["message"]
            assert (message["reasoning_content"], message["content"]) == ("hm", "So.")
            return
        deltas = [choice["delta"] for chunk in reply.events[:-1] for choice in chunk["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == "So."
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "hm"


def test_calls_that_are_forced_follow_the_thought() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    with serve(f"<think>\nhm\n</think>\n\n{call}", FORMATS["hermes"]) as live:
        message = live.chat(tools=tools, tool_choice="required").json["choices"][0]["message"]
        assert '"<think>"' in grammar_of(live).text, "the calls' own grammar begins with a thought"
        assert message["reasoning_content"] == "hm" and message["tool_calls"][0]["function"]["name"] == "f"


def test_an_answer_that_has_begun_has_no_thought_before_it() -> None:
    with serve("o.", FORMATS["hermes"]) as live:
        begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "S"}]
        fields = {"continue_final_message": True, "add_generation_prompt": False, "messages": begun}
        assert live.chat(response_format=FORM, **fields).status == 200
        assert grammar_of(live).thought is None


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"response_format": {"type": "json_object", "schema": LONG}}),
        ("chat/completions", {"guided_json": json.dumps(LONG), "stream": True}),
        (
            "chat/completions",
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": LONG}}], "tool_choice": "required"},
        ),
        ("completions", {"json_schema": LONG, "prompt": "Hi", "messages": None}),
    ],
    ids=["form", "stream", "tool", "completion"],
)
def test_what_is_not_held_is_named_in_a_header(path: str, fields: dict[str, Any], spark: Live) -> None:
    reply = spark.post(f"/v1/{path}", {name: value for name, value in {**ASK, **fields}.items() if value is not None})
    assert reply.status == 200
    assert "maxLength 524288 at $.properties.v is not held" in reply.headers["x-twostroke-warnings"]


@pytest.mark.daily
def test_an_easy_form_does_not_wait_for_hard_ones(spark: Live) -> None:
    """There are as many hard forms as both lanes take; none of them is easy enough for the quick lane."""
    done: list[int] = []

    def attack(number: int) -> None:
        done.append(spark.post("/v1/chat/completions", {**ASK, "guided_json": {"title": f"{number}", **HARD}}).status)

    attacks = [threading.Thread(target=attack, args=(number,)) for number in range(8 if TIER.daily else 3)]
    for thread in attacks:
        thread.start()
    easy = spark.post("/v1/chat/completions", {**ASK, "guided_choice": ["yes", "no"]})
    at_the_answer = len(done)
    for thread in attacks:
        thread.join()
    assert easy.status == 200 and at_the_answer < len(attacks)
    assert set(done) <= {400, 503}
