"""GLM 4.7 and 5, Ling 3: like GLM 4.5, without line ends."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.formats.tagged.glm import ENDS, RESULT
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_INLINE = TaggedNotation(
    name_open="",
    name_close="",
    key_open="<arg_key>",
    key_close="</arg_key>",
    value_open="<arg_value>",
    value_close="</arg_value>",
)
FORMAT = Format(
    "glm47",
    calls=(CallForm(_INLINE, "<tool_call>", "</tool_call>"), hermes.CALL),
    thought=THINK,
    ends=ENDS,
    result=RESULT,
)
EXAMPLES = (
    Example('<tool_call>hours\n{"day": "Mon"}</tool_call>', calls=(("hours", '{"day": "Mon"}'),)),
    Example('<tool_call>{"name": "bell", "arguments": {}}</tool_call>', calls=(("bell", "{}"),)),
    Example(
        "Which?</think><tool_call>bell</tool_call><tool_call>hours<arg_key>day</arg_key><arg_value>Mon</arg_value>"
        "</tool_call>",
        thought="Which?",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
        prompt="<think>",
    ),
)
