"""DSML, the tags of DeepSeek V3.2 and V4. An argument's tag has string="true" where the value is plain text, and
string="false" where it is JSON."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open='<｜DSML｜invoke name="',
    name_close='">\n',
    key_open='<｜DSML｜parameter name="',
    key_close='" string="{type}">',
    value_close="</｜DSML｜parameter>",
    closing="</｜DSML｜invoke>",
    between="\n",
    lead="<｜DSML｜invoke name=",
    typed="string",
)


def calls_in(section: str) -> tuple[CallForm, ...]:
    """Returns the form of calls that stand within a tag of the name `section`, as the field `calls` of a Format."""
    begin, end = f"\n\n<｜DSML｜{section}>\n", f"\n</｜DSML｜{section}>"
    return (CallForm(_NOTATION, between="\n", begin=begin, end=end),)


FORMAT = Format(
    "dsml",
    calls=calls_in("tool_calls"),
    thought=THINK,
    ends=("<｜end▁of▁sentence｜>",),
    result=ResultForm("user", "<tool_result>", "</tool_result>"),
    offer=("<｜DSML｜tool_calls>",),
    vocabulary=("｜DSML｜",),
    parts=("｜DSML｜",),
)
EXAMPLES = (
    Example(
        'I look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="shelf">\n<｜DSML｜parameter name="title" '
        'string="true">12</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        "I look.",
        calls=(("shelf", '{"title": "12"}'),),
        prompt="</think>",
    ),
    Example(
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="shelf">\n<｜DSML｜parameter name="copies" string="false">12'
        '</｜DSML｜parameter>\n<｜DSML｜parameter name="place" string="false">{"row": 3}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        calls=(("shelf", '{"copies": 12, "place": {"row": 3}}'),),
    ),
)
