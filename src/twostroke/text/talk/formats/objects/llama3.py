"""Llama 3.1 to 3.3: an object without marks, which is a call if it names a tool."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.named import functionary31
from twostroke.text.talk.notations.object import ObjectNotation

_OBJECT = ObjectNotation(arguments="parameters")
FORMAT = Format(
    "llama3",
    calls=(
        CallForm(_OBJECT, between="; "),
        CallForm(_OBJECT, begin="<|python_tag|>", between="; "),
        *functionary31.FORMAT.calls,
    ),
    wraps=("<|python_tag|>",),
    ends=("<|eot_id|>", "<|eom_id|>"),
    result=ResultForm("ipython"),
    vocabulary=("<|python_tag|>", "<|eom_id|>"),
    offer=('{"name": function name, "parameters": dictionary of argument name and its value}',),
)
EXAMPLES = (
    Example('{"name": "hours", "parameters": {"day": "Mon"}}', calls=(("hours", '{"day": "Mon"}'),)),
    Example('{"type": "function", "function": "bell", "parameters": {}}', calls=(("bell", "{}"),)),
    Example('<function=hours>{"day": "Mon"}</function>', calls=(("hours", '{"day": "Mon"}'),)),
    Example("<|python_tag|>print(1)", "print(1)"),
    Example('{"open": "nine"}', '{"open": "nine"}'),
    Example('{"name": "Bob", "parameters": {}}', '{"name": "Bob", "parameters": {}}'),
    Example(
        '<|python_tag|>{"name": "hours", "parameters": {"day": "Mon"}}; {"name": "bell", "parameters": {}}',
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example(
        '{"name": "bell", "parameters": {}}\n{"name": "hours", "parameters": {"day": "Mon"}}',
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
    ),
    Example('{"name": "bell", "parameters": {}}\nDone.', "Done.", calls=(("bell", "{}"),)),
)
