"""MiniMax M1: the calls of a turn are JSON objects on lines of their own, between `<tool_calls>` tags."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import CallForm, Example
from twostroke.text.talk.formats.objects import tool_calls
from twostroke.text.talk.notations.object import ObjectNotation

_LINES = CallForm(ObjectNotation(), between="\n", begin="<tool_calls>\n", end="\n</tool_calls>")
FORMAT = replace(
    tool_calls.FORMAT, name="minimax_m1", calls=(_LINES,), vocabulary=(), offer=("<tool_calls>\n{",), ends=()
)
EXAMPLES = (
    Example(
        '<tool_calls>\n{"name": "bell", "arguments": {}}\n{"name": "hours", "arguments": {"day": "Mon"}}\n'
        "</tool_calls>",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
    ),
)
