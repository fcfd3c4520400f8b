"""Step 3: tags with attributes within marks of DeepSeek's kind."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open='<steptml:invoke name="',
    name_close='">',
    key_open='<steptml:parameter name="',
    key_close='">',
    value_close="</steptml:parameter>",
    closing="</steptml:invoke>",
    twice=True,
)
_SECTION = ("<｜tool_call_end｜>", "", "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>")
FORMAT = Format(
    "step3",
    calls=(
        CallForm(_NOTATION, "<｜tool_call_begin｜>function<｜tool_sep｜>", *_SECTION),
        CallForm(_NOTATION, "<｜tool_call_begin｜>", *_SECTION),
    ),
    wraps=("<｜tool_sep｜>",),
    thought=THINK,
    vocabulary=("<｜tool_calls_begin｜>", "<｜tool_sep｜>"),
)
EXAMPLES = (
    Example(
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="hours">'
        '<steptml:parameter name="day">Mon</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="hours"><steptml:parameter name="day"> Mon'
        '</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_sep｜><｜tool_call_begin｜>'
        '<steptml:invoke name="bell"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        calls=(("hours", '{"day": " Mon"}'), ("bell", "{}")),
    ),
    Example(
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>bell\n<steptml:invoke name="bell">'
        "</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        calls=(("bell", "{}"),),
    ),
)
