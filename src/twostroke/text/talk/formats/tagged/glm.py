"""GLM 4.5 and 4.6, Laguna: the name has no tag; keys and values stand in tags, on lines of their own."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_LINES = TaggedNotation(
    name_open="",
    name_close="\n",
    key_open="<arg_key>",
    key_close="</arg_key>\n",
    value_open="<arg_value>",
    value_close="</arg_value>",
    between="\n",
)
ENDS = ("<|user|>", "<|observation|>", "<|endoftext|>")
RESULT = ResultForm("tool", "<tool_response>\n", "\n</tool_response>")
FORMAT = Format(
    "glm",
    calls=(CallForm(_LINES, "<tool_call>", "</tool_call>", "\n"), hermes.CALL),
    thought=THINK,
    ends=ENDS,
    result=RESULT,
    vocabulary=("<tool_call>", "<arg_key>", "<arg_value>"),
)
EXAMPLES = (
    Example('<tool_call>hours\n{"day": "Mon"}</tool_call>', calls=(("hours", '{"day": "Mon"}'),)),
    Example('<tool_call>{"name": "bell", "arguments": {}}</tool_call>', calls=(("bell", "{}"),)),
    Example(
        '\n<think>Which?</think>\n<tool_call>shelf\n<arg_key>place</arg_key>\n<arg_value>{"row": 3}</arg_value>\n'
        "</tool_call>",
        thought="Which?",
        calls=(("shelf", '{"place": {"row": 3}}'),),
    ),
    Example(
        "Which?</think><tool_call>bell</tool_call><tool_call>hours<arg_key>day</arg_key><arg_value>Mon</arg_value>"
        "</tool_call>",
        thought="Which?",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
        prompt="<think>",
    ),
    Example(
        "Which?<tool_call>hours<arg_key>day</arg_key><arg_value> Mon </arg_value></tool_call>",
        thought="Which?",
        calls=(("hours", '{"day": " Mon "}'),),
        prompt="<think>",
    ),
)
