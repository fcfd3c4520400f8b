"""The openai and anthropic packages in loops of five tool turns, for every format, over all three APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.agents.script import Seen, check, looping, result_of
from tests.serve.apis.test_formats import CLAUDES, FLAT, OFFERED
from tests.serve.fakes import MODEL
from tests.serve.harness import Live
from tests.tiers import in_turn
from twostroke.text.talk.catalog import FORMATS

USER: Any = {"role": "user", "content": "When is it open?"}
MOST_TURNS = 8
"""The most turns of a loop. A loop that does not end fails by this limit."""


def over_chat(live: Live) -> Seen:
    """The answers are whole and streamed in turn. The message goes back as it came, with its thoughts."""
    messages, calls, thoughts = [USER], list[Any](), list[str]()
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        for turn in range(MOST_TURNS):
            asked: Any = {"model": MODEL, "messages": messages, "tools": OFFERED}
            if turn % 2:
                with client.chat.completions.stream(**asked) as events:
                    choice: Any = events.get_final_completion().choices[0]
            else:
                choice = client.chat.completions.create(**asked).choices[0]
            said = choice.message
            thoughts += filter(None, [getattr(said, "reasoning_content", None)])
            messages.append(json.loads(said.model_dump_json(exclude_none=True, exclude={"parsed"})))
            if choice.finish_reason == "stop":
                return Seen(calls, thoughts, said.content or "")
            assert choice.finish_reason == "tool_calls"
            calls.append([(call.function.name, json.loads(call.function.arguments)) for call in said.tool_calls])
            for place, call in enumerate(said.tool_calls):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result_of(turn, place)})
    raise AssertionError("the loop did not end")


def over_responses(live: Live) -> Seen:
    items: list[Any] = [USER]
    calls, thoughts = list[Any](), list[str]()
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        for turn in range(MOST_TURNS):
            asked: Any = {"model": MODEL, "input": items, "tools": FLAT}
            if turn % 2:
                with client.responses.stream(**asked) as events:
                    made: Any = events.get_final_response()
            else:
                made = client.responses.create(**asked)
            items += [json.loads(item.model_dump_json(exclude_none=True)) for item in made.output]
            thoughts += [part.text for item in made.output if item.type == "reasoning" for part in item.content or []]
            called = [item for item in made.output if item.type == "function_call"]
            if not called:
                return Seen(calls, thoughts, made.output_text)
            calls.append([(call.name, json.loads(call.arguments)) for call in called])
            for place, call in enumerate(called):
                output = {"type": "function_call_output", "call_id": call.call_id, "output": result_of(turn, place)}
                items.append(output)
    raise AssertionError("the loop did not end")


def over_messages(live: Live) -> Seen:
    messages, calls, thoughts = [USER], list[Any](), list[str]()
    with Anthropic(base_url=live.url, api_key="none", max_retries=0) as client:
        for turn in range(MOST_TURNS):
            asked: Any = {"model": MODEL, "max_tokens": 5000, "messages": messages, "tools": CLAUDES}
            if turn % 2:
                with client.messages.stream(**asked) as events:
                    made: Any = events.get_final_message()
            else:
                made = client.messages.create(**asked)
            messages.append({"role": "assistant", "content": made.content})
            thoughts += [block.thinking for block in made.content if block.type == "thinking"]
            used = [block for block in made.content if block.type == "tool_use"]
            if made.stop_reason == "end_turn":
                return Seen(calls, thoughts, "".join(block.text for block in made.content if block.type == "text"))
            assert made.stop_reason == "tool_use"
            calls.append([(block.name, block.input) for block in used])
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": result_of(turn, place)}
                for place, block in enumerate(used)
            ]
            messages.append({"role": "user", "content": results})
    raise AssertionError("the loop did not end")


LOOPS = (over_chat, over_responses, over_messages)


@pytest.mark.parametrize(("name", "loop"), in_turn(FORMATS, LOOPS, 1), ids=lambda each: getattr(each, "__name__", each))
def test_five_tool_turns_and_an_answer(loop: Any, name: str) -> None:
    form = FORMATS[name]
    with looping(form) as (live, engine):
        seen = loop(live)
        check(form, seen, engine)
        assert len(engine.prompts) == 6
