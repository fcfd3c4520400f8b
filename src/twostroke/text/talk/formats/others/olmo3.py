"""OLMo 3: Python's calls on lines between marks, with JSON's true, false and null."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.pythonic import PythonicNotation

_CALLS = CallForm(
    PythonicNotation(json_words=True), between="\n", begin="<function_calls>\n", end="\n</function_calls>"
)
FORMAT = Format(
    "olmo3",
    calls=(_CALLS,),
    thought=THINK,
    ends=("<|im_end|>",),
    result=ResultForm("environment"),
    vocabulary=("<function_calls>", "</function_calls>"),
    offer=("<function_calls>",),
)
EXAMPLES = (
    Example(
        '<function_calls>\nhours(day="Mon")\nshelf(title="Emma", due=false)\n</function_calls>',
        calls=(("hours", '{"day": "Mon"}'), ("shelf", '{"title": "Emma", "due": false}')),
    ),
)
