"""Hunyuan A13B: `<answer>` and `</answer>` stand around everything after the thought, both text and calls."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import Example
from twostroke.text.talk.formats.objects import tool_calls

FORMAT = replace(
    tool_calls.FORMAT,
    name="hunyuan",
    wraps=("<answer>", "</answer>"),
    answers=(("<answer>\n", "\n</answer>"),),
    ends=("<|eos|>",),
    vocabulary=(),
    offer=("<answer>",),
)
EXAMPLES = (
    Example(
        '<think>\nHm.\n</think>\n<answer>\nI look.\n<tool_calls>[{"name": "bell", "arguments": {}}]</tool_calls>\n'
        "</answer>",
        "I look.",
        "Hm.",
        (("bell", "{}"),),
    ),
    Example("<think>\n\n</think>\n<answer>\nAt nine.\n</answer>", "At nine."),
)
