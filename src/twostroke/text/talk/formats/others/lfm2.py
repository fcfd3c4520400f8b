"""LFM2 and LFM2.5: a list of Python's calls between marks, then text."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.object import ObjectNotation
from twostroke.text.talk.notations.pythonic import PythonicNotation

_BEGIN, _END = "<|tool_call_start|>", "<|tool_call_end|>"
FORMAT = Format(
    "lfm2",
    calls=(
        CallForm(PythonicNotation(), between=", ", begin=_BEGIN, end=_END, listed=True),
        CallForm(ObjectNotation(), between=", ", begin=_BEGIN, end=_END, listed=True),
        CallForm(PythonicNotation(), between=", ", listed=True),
    ),
    thought=THINK,
    ends=("<|im_end|>",),
    vocabulary=(_BEGIN, _END),
)
EXAMPLES = (
    Example(
        '<|tool_call_start|>[hours(day="Mon")]<|tool_call_end|>I look.', "I look.", calls=(("hours", '{"day": "Mon"}'),)
    ),
    Example('<think>Hm.</think>[hours(day="Mon")]', thought="Hm.", calls=(("hours", '{"day": "Mon"}'),)),
    Example("<|tool_call_start|>[]<|tool_call_end|>I look.", "I look."),
    Example("[1, 2] is a list.", "[1, 2] is a list."),
    Example('<|tool_call_start|>[{"name": "bell", "arguments": {}}]<|tool_call_end|>', calls=(("bell", "{}"),)),
)
