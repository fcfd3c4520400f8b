"""DeepSeek V3.1: a call is the tool's name, `<｜tool▁sep｜>` and the arguments as JSON, between special tokens."""

from __future__ import annotations

from twostroke.text.talk.format import Example, Format
from twostroke.text.talk.formats.named.deepseek3 import BARE, FENCED, RESULT
from twostroke.text.talk.formats.thoughts import THINK

FORMAT = Format(
    "deepseek31",
    calls=(BARE, FENCED),
    thought=THINK,
    ends=("<｜end▁of▁sentence｜>",),
    result=RESULT,
)
EXAMPLES = (
    Example(
        "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bell<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "I look.",
        calls=(("bell", "{}"),),
    ),
    Example(
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>hours<｜tool▁sep｜>{"day": "Mon"}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>bell<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
)
