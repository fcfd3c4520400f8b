"""Seed-OSS: tags for the function and its parameters; line ends sometimes stand around values."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ThoughtMarks
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open="<function=",
    name_close=">\n",
    key_open="<parameter=",
    key_close=">",
    value_close="</parameter>",
    closing="</function>",
    loose="\n",
    between="\n",
    lead="<function=",
)
FORMAT = Format(
    "seed",
    calls=(CallForm(_NOTATION, "<seed:tool_call>\n", "\n</seed:tool_call>", "\n"),),
    thought=ThoughtMarks("<seed:think>", "</seed:think>", anywhere=True),
    ends=("<seed:eos>",),
    vocabulary=("<seed:tool_call>", "<seed:think>"),
)
EXAMPLES = (
    Example(
        "<seed:think>Which?</seed:think><seed:tool_call>\n<function=bell>\n</function>\n</seed:tool_call>",
        thought="Which?",
        calls=(("bell", "{}"),),
    ),
    Example(
        "<seed:tool_call>\n<function=shelf>\n<parameter=title>Emma</parameter>\n<parameter=due>True</parameter>\n"
        "</function>\n</seed:tool_call>",
        calls=(("shelf", '{"title": "Emma", "due": true}'),),
    ),
    Example(
        "<seed:tool_call>\n<function=shelf>\n<parameter=title>\nEmma\n</parameter>\n<parameter=copies>\n2\n</parameter>\n"
        "</function>\n</seed:tool_call>",
        calls=(("shelf", '{"title": "Emma", "copies": 2}'),),
    ),
)
