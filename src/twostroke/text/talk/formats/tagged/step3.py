"""Step 3: tags with attributes within marks of DeepSeek's kind."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open='function<｜tool_sep｜><steptml:invoke name="',
    name_close='">',
    key_open='<steptml:parameter name="',
    key_close='">',
    value_close="</steptml:parameter>",
    closing="</steptml:invoke>",
)
FORMAT = Format(
    "step3",
    calls=(
        CallForm(
            _NOTATION,
            "<｜tool_call_begin｜>",
            "<｜tool_call_end｜>",
            "",
            "<｜tool_calls_begin｜>",
            "<｜tool_calls_end｜>",
        ),
    ),
    thought=THINK,
    vocabulary=("<｜tool_calls_begin｜>", "<｜tool_sep｜>"),
)
EXAMPLES = (
    Example(
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="hours">'
        '<steptml:parameter name="day">Mon</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
)
