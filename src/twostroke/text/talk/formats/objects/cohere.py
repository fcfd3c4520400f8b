"""Command R7B, A, A Reasoning, Cohere2 MoE: the calls of a turn are a JSON list. Special tokens stand around thoughts,
calls and answers."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm, ThoughtMarks
from twostroke.text.talk.notations.object import ObjectNotation

_CALLS = CallForm(
    ObjectNotation(name="tool_name", arguments="parameters", call_id="tool_call_id", id_first=True, counts=True),
    between=",\n    ",
    begin="<|START_ACTION|>",
    end="<|END_ACTION|>",
    listed=True,
)
FORMAT = Format(
    "cohere",
    calls=(_CALLS,),
    thought=ThoughtMarks("<|START_THINKING|>", "<|END_THINKING|>", anywhere=True),
    wraps=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    answers=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
    ends=("<|END_OF_TURN_TOKEN|>",),
    result=ResultForm("system", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"),
    vocabulary=("<|START_ACTION|>", "<|END_ACTION|>"),
)
EXAMPLES = (
    Example(
        '<|START_THINKING|>I ask.<|END_THINKING|><|START_ACTION|>[{"tool_call_id": "0", "tool_name": "bell", '
        '"parameters": {}}]<|END_ACTION|>',
        thought="I ask.",
        calls=(("bell", "{}"),),
    ),
    Example(
        "Hm.<|END_THINKING|><|START_RESPONSE|>At nine.<|END_RESPONSE|>",
        "At nine.",
        "Hm.",
        prompt="<|START_THINKING|>",
    ),
    Example("<|START_RESPONSE|>At nine.<|END_RESPONSE|>", "At nine."),
)
