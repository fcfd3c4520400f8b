"""FunctionGemma: braces, with texts between a mark."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.braces import BracesNotation

FORMAT = Format(
    "functiongemma",
    calls=(CallForm(BracesNotation("call:", "<escape>"), "<start_function_call>", "<end_function_call>"),),
    ends=("<end_of_turn>", "<start_function_response>"),
    result=ResultForm("tool", "<start_function_response>response:{name}{{value:", "}}<end_function_response>"),
    vocabulary=("<start_function_call>", "<escape>"),
)
EXAMPLES = (
    Example(
        "<start_function_call>call:shelf{title:<escape>Emma<escape>,copies:2}<end_function_call>",
        calls=(("shelf", '{"title": "Emma", "copies": 2}'),),
    ),
)
