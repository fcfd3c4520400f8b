"""Nemotron Nano v2 and Llama-Nemotron Super 1.5: the calls of a turn are one JSON list in a `<TOOLCALL>` element."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.object import ObjectNotation

FORMAT = Format(
    "nemotron",
    calls=(CallForm(ObjectNotation(), between=", ", begin="<TOOLCALL>", end="</TOOLCALL>", listed=True),),
    thought=THINK,
    ends=("<SPECIAL_12>",),
    result=ResultForm("user", "<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
    vocabulary=("<TOOLCALL>",),
    offer=("<TOOLCALL>",),
)
EXAMPLES = (
    Example(
        'Which day?\n</think>\n<TOOLCALL>[{"name": "bell", "arguments": {}}]</TOOLCALL>',
        thought="Which day?",
        calls=(("bell", "{}"),),
        prompt="<think>\n",
    ),
)
