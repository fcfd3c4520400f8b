"""FunctionGemma: a call is `call:name{key:value,...}`, in which texts stand between two `<escape>` tokens."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.braces import BracesNotation

_CALL = BracesNotation("call:", "<escape>")
FORMAT = Format(
    "functiongemma",
    calls=(
        CallForm(_CALL, "<start_function_call>", "<end_function_call>"),
        CallForm(_CALL, close="<end_function_call>"),
    ),
    ends=("<end_of_turn>", "<start_function_response>"),
    result=ResultForm("tool", "<start_function_response>response:{name}{{value:", "}}<end_function_response>"),
    vocabulary=("<start_function_call>", "<escape>"),
)
EXAMPLES = (
    Example(
        "<start_function_call>call:shelf{title:<escape>Emma<escape>,copies:2}<end_function_call>",
        calls=(("shelf", '{"title": "Emma", "copies": 2}'),),
    ),
    Example(
        "I look.<start_function_call>call:hours{day:<escape>Mon<escape>}<end_function_call>"
        "<start_function_call>call:bell{}<end_function_call>",
        "I look.",
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example(
        "call:shelf{title:<escape>a<escape>due:true}<end_function_call>",
        calls=(("shelf", '{"title": "a", "due": true}'),),
    ),
)
