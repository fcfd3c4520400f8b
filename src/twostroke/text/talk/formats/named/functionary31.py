"""Functionary 3.1: the tool's name stands in the tag before the arguments, `<function=NAME>`."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.named import NamedNotation

FORMAT = Format(
    "functionary31",
    calls=(CallForm(NamedNotation(">"), "<function=", "</function>"),),
    ends=("<|eot_id|>", "<|eom_id|>"),
    result=ResultForm("ipython"),
    offer=("<function=example_function_name>{",),
)
EXAMPLES = (
    Example("I look.<function=bell>{}</function>", "I look.", calls=(("bell", "{}"),)),
    Example(
        '<function=hours>{"day": "Mon"}</function><function=bell>{}</function>',
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
)
