"""Phi-4-mini: the calls of a turn are one JSON list between special tokens. The template takes the tools from the field
`tools` of the system message."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.object import ObjectNotation

_CALLS = CallForm(ObjectNotation(), between=", ", begin="<|tool_call|>", end="<|/tool_call|>", listed=True)
FORMAT = Format(
    "phi4_mini",
    calls=(_CALLS, CallForm(ObjectNotation(), between=", ", begin="functools", listed=True)),
    ends=("<|end|>",),
    result=ResultForm("tool", "<|tool_response|>"),
    vocabulary=("<|tool_call|>", "<|/tool_call|>"),
)
EXAMPLES = (
    Example('functools[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example(
        '<|tool_call|>[{"name": "shelf", "arguments": {"title": "Emma", "place": {"rows": [1, 2]}}}]<|/tool_call|>',
        calls=(("shelf", '{"title": "Emma", "place": {"rows": [1, 2]}}'),),
    ),
)
