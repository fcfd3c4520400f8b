"""Muse Glimmer: a turn has messages with recipients. Calls are tags (`atem:invoke`) inside a message, with the names of
tools and parameters as attributes."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, Messages
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open='<atem:invoke name="',
    name_close='">\n',
    key_open='<atem:parameter name="',
    key_close='">',
    value_close="</atem:parameter>",
    closing="</atem:invoke>",
    between="\n",
)
FORMAT = Format(
    "atem",
    calls=(CallForm(_NOTATION, between="\n", begin="<atem:function_calls>\n", end="\n</atem:function_calls>"),),
    messages=Messages(
        start="<|start|>assistant",
        body="<|message|>",
        ends=("<|eom|>", "<|eot|>"),
        thoughts=("self",),
        recipient=" to=",
        everyone=("user",),
        inside=True,
    ),
    ends=("<|eot|>",),
    vocabulary=("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
)
EXAMPLES = (
    Example(
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=hours<|message|><atem:function_calls>\n"
        '<atem:invoke name="hours">\n<atem:parameter name="day">Mon</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls>",
        thought="Hm.",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(" to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>At nine.<|eot|>", "At nine.", "Hm."),
)
