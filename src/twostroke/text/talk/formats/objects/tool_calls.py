"""Jamba 1.5, Apriel, Hunyuan A13B, MiniMax M1: the calls of a turn are a JSON list, or objects on lines, between tags.
"""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.object import ObjectNotation

CALLS = CallForm(ObjectNotation(), between=", ", begin="<tool_calls>", end="</tool_calls>", listed=True)
FORMAT = Format(
    "tool_calls",
    calls=(CALLS,),
    thought=THINK,
    ends=("<|eom|>",),
    vocabulary=("<tool_calls>", "</tool_calls>"),
    offer=("<tool_calls>[{",),
)
EXAMPLES = (
    Example(
        '<tool_calls>[\n {"name": "hours", "arguments": {"day": "Mon"}}\n]</tool_calls>',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        '<tool_calls>\n{"name": "bell", "arguments": {}}\n{"name": "hours", "arguments": {"day": "Mon"}}\n'
        "</tool_calls>",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
    ),
)
