"""Kimi K3: every tag is made of the special tokens `<|open|>` or `<|close|>`, a name, and `<|sep|>`. An argument's tag
gives the type of its value."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ThoughtMarks
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open='<|open|>call tool="',
    name_close='" index="{index}"<|sep|>',
    key_open='<|open|>argument key="',
    key_close='" type="{type}"<|sep|>',
    value_close="<|close|>argument<|sep|>",
    closing="<|close|>call<|sep|>",
    typed="type",
)
FORMAT = Format(
    "kimi_k3",
    calls=(CallForm(_NOTATION, begin="<|open|>tools<|sep|>", end="<|close|>tools<|sep|>"),),
    thought=ThoughtMarks("<|open|>think<|sep|>", "<|close|>think<|sep|>", anywhere=True),
    wraps=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    answers=(("<|open|>response<|sep|>", "<|close|>response<|sep|>"),),
    vocabulary=("<|open|>", "<|sep|>", "<|close|>"),
    parts=("<|open|>", "<|sep|>", "<|close|>"),
)
EXAMPLES = (
    Example(
        '<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool="shelf" index="1"<|sep|>'
        '<|open|>argument key="title" type="string"<|sep|>12<|close|>argument<|sep|>'
        '<|open|>argument key="copies" type="integer"<|sep|>2<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>",
        thought="Hm.",
        calls=(("shelf", '{"title": "12", "copies": 2}'),),
    ),
    Example("<|open|>response<|sep|>At nine.<|close|>response<|sep|>", "At nine."),
    Example("<|open|>response<|sep|>At nine.<|close|>response<|sep|><|close|>message<|sep|>", "At nine."),
)
