"""Apertus: the calls of a turn are a JSON list of objects, each of which has the tool's name as its only key."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ThoughtMarks
from twostroke.text.talk.notations.object import ObjectNotation

_CALLS = CallForm(
    ObjectNotation(keyed=True), between=", ", begin="<|tools_prefix|>", end="<|tools_suffix|>", listed=True
)
FORMAT = Format(
    "apertus",
    calls=(_CALLS,),
    thought=ThoughtMarks("<|inner_prefix|>", "<|inner_suffix|>", anywhere=True),
    ends=("<|assistant_end|>",),
    vocabulary=("<|tools_prefix|>", "<|tools_suffix|>"),
)
EXAMPLES = (
    Example(
        '<|inner_prefix|>Hm.<|inner_suffix|>I look.<|tools_prefix|>[{"bell": {}}]<|tools_suffix|>',
        "I look.",
        "Hm.",
        (("bell", "{}"),),
    ),
    Example(
        '<|tools_prefix|>[{"hours": {"day": "Mon"}}, {"bell": {}}]<|tools_suffix|>',
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
)
