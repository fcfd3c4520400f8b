"""Kimi K2, K2 Thinking, K2.5: the id holds the tool's name and a count over the conversation."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.ids import CallIds
from twostroke.text.talk.notations.named import NamedNotation

_IDS = CallIds(template="functions.{name}:{count}", exact=True)
_CALL = CallForm(
    NamedNotation("<|tool_call_argument_begin|>", ids=_IDS),
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
)
FORMAT = Format(
    "kimi",
    calls=(_CALL,),
    thought=THINK,
    ids=_IDS,
    ends=("<|im_end|>",),
    result=ResultForm("tool", "## Return of {id}\n"),
    vocabulary=("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
)
EXAMPLES = (
    Example(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.bell:3<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        calls=(("bell", "{}", "functions.bell:3"),),
    ),
    Example(
        "I look. <|tool_calls_section_begin|><|tool_call_begin|> functions.hours:0 <|tool_call_argument_begin|> "
        '{"day": "Mon"} <|tool_call_end|> <|tool_call_begin|>bell<|tool_call_argument_begin|>{}<|tool_call_end|> '
        "<|tool_calls_section_end|>",
        "I look.",
        calls=(("hours", '{"day": "Mon"}', "functions.hours:0"), ("bell", "{}")),
    ),
    Example(
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.hours:0<|tool_call_argument_begin|>{"day": "Mon"}'
        "<|tool_call_end|><|tool_call_begin|>functions.bell:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        calls=(("hours", '{"day": "Mon"}', "functions.hours:0"), ("bell", "{}", "functions.bell:1")),
    ),
    Example("So.<|tool_calls_section_begin|><|tool_calls_section_end|>", "So."),
    Example(
        "Which?<|tool_calls_section_begin|><|tool_call_begin|>functions.bell:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        thought="Which?",
        calls=(("bell", "{}", "functions.bell:0"),),
        prompt="<think>",
    ),
)
