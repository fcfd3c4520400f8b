"""LongCat Flash: like GLM, with tag names of its own. The model sometimes writes a call as one JSON object."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.notations.object import ObjectNotation
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open="",
    name_close="\n",
    key_open="<longcat_arg_key>",
    key_close="</longcat_arg_key>\n",
    value_open="<longcat_arg_value>",
    value_close="</longcat_arg_value>",
    between="\n",
)
_OPEN, _CLOSE = "<longcat_tool_call>", "</longcat_tool_call>"
FORMAT = Format(
    "longcat",
    calls=(CallForm(_NOTATION, _OPEN, _CLOSE, "\n"), CallForm(ObjectNotation(), _OPEN, _CLOSE, "\n")),
    vocabulary=("<longcat_tool_call>",),
    offer=("<longcat_tool_call>",),
)
EXAMPLES = (
    Example(
        "<longcat_tool_call>hours\n<longcat_arg_key>day</longcat_arg_key>\n<longcat_arg_value>Mon"
        "</longcat_arg_value>\n</longcat_tool_call>",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example('<longcat_tool_call>{"name": "bell", "arguments": {}}</longcat_tool_call>', calls=(("bell", "{}"),)),
)
