"""MiniCPM 5: tags with attributes. A value that contains line ends or tags stands in a CDATA section."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open="",
    name_close='">',
    key_open='<param name="',
    key_close='">',
    value_close="</param>",
    closing="</function>",
    wraps=("<![CDATA[", "]]>"),
)
FORMAT = Format(
    "minicpm5",
    calls=(CallForm(_NOTATION, '<function name="', between="\n"),),
    thought=THINK,
    ends=("<|im_end|>",),
    result=ResultForm("user", "<tool_response>\n", "\n</tool_response>"),
    offer=('<function name="function-name"><param name="param-name">',),
)
EXAMPLES = (
    Example(
        'I look.\n<function name="shelf"><param name="title">Emma</param><param name="copies">12</param></function>',
        "I look.",
        calls=(("shelf", '{"title": "Emma", "copies": 12}'),),
    ),
    Example(
        '<function name="shelf"><param name="title"><![CDATA[a <b>\n</param> & c]]></param></function>\n'
        '<function name="bell"></function>',
        calls=(("shelf", '{"title": "a <b>\\n</param> & c"}'), ("bell", "{}")),
    ),
)
