"""Harmony: gpt-oss writes messages with channels and recipients."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, Messages, ResultForm
from twostroke.text.talk.notations.named import NamedNotation

_CALL = CallForm(
    NamedNotation(" <|constrain|>json<|message|>", " to=functions."),
    open="<|channel|>commentary",
    close="<|call|>",
)
FORMAT = Format(
    "harmony",
    calls=(_CALL,),
    messages=Messages(
        start="<|start|>assistant",
        body="<|message|>",
        ends=("<|end|>", "<|call|>", "<|return|>"),
        channel="<|channel|>",
        thoughts=("analysis",),
        recipient=" to=",
        prefix="functions.",
        everyone=("assistant", "user"),
        constrain="<|constrain|>",
    ),
    ends=("<|return|>", "<|call|>"),
    result=ResultForm("tool", "<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>", "<|end|>"),
    vocabulary=("<|start|>", "<|channel|>", "<|message|>"),
)
EXAMPLES = (
    Example(
        "<|channel|>analysis<|message|>Which day?<|end|><|start|>assistant<|channel|>commentary to=functions.hours "
        '<|constrain|>json<|message|>{"day": "Mon"}',
        thought="Which day?",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>At nine.",
        "At nine.",
        "Easy.",
    ),
    Example(
        "<|channel|>commentary<|message|>First the hours.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.bell <|constrain|>json<|message|>{}",
        "First the hours.",
        calls=(("bell", "{}"),),
    ),
    Example(
        " to=functions.bell<|channel|>commentary json<|message|>{}<|call|>", calls=(("bell", "{}"),)
    ),
    Example("<|channel|>analysis to=python<|message|>print(1)<|call|>"),
    Example(
        "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
        "<|channel|>final to=user<|message|>At nine.",
        "At nine.",
        "Hm.",
    ),
    Example("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|message|>At nine.", "At nine.", "Hm."),
    Example("At nine.", "At nine."),
    Example("<|channel|>final<|message|>At nine.<|return|>", "At nine."),
    Example("At nine.", "At nine.", prompt="<|start|>assistant<|channel|>final<|message|>"),
)
