"""Gemma 4: arguments are an object in braces, with `<|"|>` before and after each string. A tool's result stands in the
same turn as its call."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm, ThoughtMarks
from twostroke.text.talk.notations.braces import BracesNotation

_CALL = BracesNotation("call:", '<|"|>')
FORMAT = Format(
    "gemma4",
    calls=(
        CallForm(_CALL, "<|tool_call>", "<tool_call|>"),
        CallForm(_CALL, "<|tool_call>:", "<tool_call|>"),
        CallForm(_CALL, close="<tool_call|>"),
    ),
    thought=ThoughtMarks("<|channel>thought\n", "\n<channel|>", anywhere=True),
    wraps=("<|channel>",),
    ends=("<turn|>", "<|tool_response>", "<eos>"),
    result=ResultForm("tool", "<|tool_response>response:{name}{{value:", "}}<tool_response|>"),
    vocabulary=("<|tool_call>", "<tool_call|>"),
    parts=("<|channel>",),
)
EXAMPLES = (
    Example(
        '<|channel>thought\nWhich?\n<channel|><|tool_call>call:shelf{place:{rows:[1,2]},title:<|"|>Emma<|"|>}<tool_call|>',
        thought="Which?",
        calls=(("shelf", '{"place": {"rows": [1, 2]}, "title": "Emma"}'),),
    ),
    Example(
        "<|channel>thought\n<channel|>I look.<|tool_call>call:bell{}<tool_call|><|tool_call>call:hours{day:<|\"|>Mon"
        '<|"|>}<tool_call|>',
        "I look.",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
    ),
    Example("<|tool_call>call:shelf{copies:3.}<tool_call|>", calls=(("shelf", '{"copies": 3.0}'),)),
    Example("<|tool_call>call:shelf{copies:3}<tool_call|>", calls=(("shelf", '{"copies": 3}'),)),
    Example(
        '<|channel>thought\nHm.\n<channel|>call:hours{day:<|"|>Mon<|"|>}',
        thought="Hm.",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example("<|tool_call>:call:bell{}<tool_call|>", calls=(("bell", "{}"),)),
    Example("call:none{}", "call:none{}"),
    Example("<|channel><|channel>thought\n<channel|>At nine.", "At nine."),
)
