"""Llama 4, and Llama 3.2 as trained: a list without marks, whose items look like Python's calls and name tools."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.object import ObjectNotation
from twostroke.text.talk.notations.pythonic import PythonicNotation

_OBJECT = ObjectNotation(arguments="parameters")
FORMAT = Format(
    "llama4",
    calls=(
        CallForm(PythonicNotation(), between=", ", listed=True),
        CallForm(PythonicNotation(), between=", ", begin="<|python_start|>", end="<|python_end|>", listed=True),
        CallForm(_OBJECT, between="; "),
        CallForm(_OBJECT, "<|python_end|>"),
    ),
    wraps=("<|python_start|>", "<|python_end|>"),
    ends=("<|eot|>", "<|eom|>"),
    result=ResultForm("ipython"),
    vocabulary=("<|python_start|>", "<|python_end|>"),
    offer=("[func_name1(params_name1=params_value1",),
)
EXAMPLES = (
    Example(
        '[shelf(title="Emma", copies=2, place={"row": 3}), bell()]',
        calls=(("shelf", '{"title": "Emma", "copies": 2, "place": {"row": 3}}'), ("bell", "{}")),
    ),
    Example(
        '<|python_start|>I look.<|python_end|>{"name": "hours", "parameters": {"day": "Mon"}}',
        "I look.",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        '<|python_start|><|python_end|>{"name": "hours", "parameters": {"day": "Mon"}}'
        '{"name": "bell", "parameters": {}}',
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example("<|python_start|>print(1)<|python_end|>", "print(1)"),
    Example("[1, 2]", "[1, 2]"),
    Example("[qz(1)]", "[qz(1)]"),
    Example(
        "<|python_start|>[shelf(title='a \"b\"', due=True, place=None)]<|python_end|>",
        calls=(("shelf", '{"title": "a \\"b\\"", "due": true, "place": null}'),),
    ),
)
