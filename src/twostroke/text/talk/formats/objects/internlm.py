"""InternLM 2, 2.5 and 3: a call is one JSON object between special tokens."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.object import ObjectNotation

_CALL = CallForm(ObjectNotation(arguments="parameters"), "<|action_start|><|plugin|>\n", "<|action_end|>")
FORMAT = Format(
    "internlm",
    calls=(_CALL,),
    ends=("<|im_end|>",),
    result=ResultForm("environment"),
    vocabulary=("<|action_start|>", "<|plugin|>"),
    parts=("<|action_start|>", "<|plugin|>"),
)
EXAMPLES = (
    Example(
        '<|action_start|><|plugin|>\n{"name": "bell", "parameters": {}}<|action_end|>', calls=(("bell", "{}"),)
    ),
)
