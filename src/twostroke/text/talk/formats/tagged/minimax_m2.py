"""MiniMax M2, M2.1, M2.5: calls and parameters are tags, with their names as attributes."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open='<invoke name="',
    name_close='">\n',
    key_open='<parameter name="',
    key_close='">',
    value_close="</parameter>",
    closing="</invoke>",
    between="\n",
    lead="<invoke name=",
)
FORMAT = Format(
    "minimax_m2",
    calls=(CallForm(_NOTATION, between="\n", begin="<minimax:tool_call>\n", end="\n</minimax:tool_call>"),),
    thought=THINK,
    ends=("[e~[",),
    result=ResultForm("tool", "<response>", "</response>"),
    vocabulary=("<minimax:tool_call>", "</minimax:tool_call>"),
)
EXAMPLES = (
    Example(
        'Which?\n</think>\n\n<minimax:tool_call>\n<invoke name="hours">\n<parameter name="day">Mon</parameter>\n'
        "</invoke>\n</minimax:tool_call>",
        thought="Which?",
        calls=(("hours", '{"day": "Mon"}'),),
        prompt="<think>\n",
    ),
    Example(
        "<minimax:tool_call>\n<invoke name=bell>\n</invoke>\n<invoke name=hours>\n<parameter name=day>Mon</parameter>\n"
        "</invoke>\n</minimax:tool_call>Done.",
        "Done.",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
    ),
)
