"""Apriel 1.5 and 1.6: the prompt ends with a fixed sentence, not with a tag, and the thought begins after it."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import Example, ThoughtMarks
from twostroke.text.talk.formats.objects import tool_calls

_STEPS = ThoughtMarks(
    "Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n", prompts=("reasoning steps:",), anywhere=True
)
FORMAT = replace(
    tool_calls.FORMAT,
    name="apriel",
    thought=_STEPS,
    wraps=("[END FINAL RESPONSE]",),
    ends=("<|end|>",),
    vocabulary=("[BEGIN FINAL RESPONSE]", "<tool_calls>"),
    offer=("[BEGIN FINAL RESPONSE]",),
)
EXAMPLES = (
    Example(
        'Hm.\n[BEGIN FINAL RESPONSE]\nI look.\n<tool_calls>[{"name": "bell", "arguments": {}}]</tool_calls>',
        "I look.",
        "Hm.",
        (("bell", "{}"),),
        prompt="Here are my reasoning steps:\n",
    ),
)
