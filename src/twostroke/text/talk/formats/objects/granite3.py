"""Granite 3.0 to 3.3: calls are one list. The models' templates never write a call."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.object import ObjectNotation

FORMAT = Format(
    "granite3",
    calls=(
        CallForm(ObjectNotation(), between=", ", begin="<|tool_call|>", listed=True),
        hermes.LISTED,
        CallForm(ObjectNotation(), between=", ", listed=True),
    ),
    thought=THINK,
    wraps=("<response>", "</response>"),
    answers=(("<response>", "</response>"),),
    ends=("<|end_of_text|>",),
    vocabulary=("<|tool_call|>",),
)
EXAMPLES = (
    Example('<tool_call>[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example('[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example('<|tool_call|>[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example("<think>Hm.</think><response>At nine.</response>", "At nine.", "Hm."),
)
