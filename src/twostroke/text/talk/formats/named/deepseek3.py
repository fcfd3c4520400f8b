"""DeepSeek V3 and R1: the arguments stand in a block of code (```json). Small models that learned from R1 also write
calls as Qwen does."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.named import NamedNotation

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_OPEN, _CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_FENCED = NamedNotation("\n```json\n", "function<｜tool▁sep｜>", "\n```")
FENCED = CallForm(_FENCED, _OPEN, _CLOSE, "\n", _BEGIN, _END)
BARE = CallForm(NamedNotation("<｜tool▁sep｜>"), _OPEN, _CLOSE, "", _BEGIN, _END)
RESULT = ResultForm("tool", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")
VOCABULARY = (_BEGIN, _END, _OPEN, "<｜tool▁sep｜>")
FORMAT = Format(
    "deepseek3",
    calls=(FENCED, BARE, hermes.CALL),
    thought=THINK,
    ends=("<｜end▁of▁sentence｜>",),
    result=RESULT,
    vocabulary=VOCABULARY,
)
EXAMPLES = (
    Example(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>hours\n```json\n"
        '{"day": "Mon"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>hours\n```json\n"
        '{"day": "Mon"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>bell\n```json\n{}\n```'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>Done.",
        "Done.",
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example("Hm.\n</think>\n\nAt nine.", "At nine.", "Hm.", prompt="<think>\n"),
    Example(
        'Hm.\n</think>\n\n<tool_call>\n{"name": "bell", "arguments": {}}\n</tool_call>',
        thought="Hm.",
        calls=(("bell", "{}"),),
        prompt="<think>\n",
    ),
)
