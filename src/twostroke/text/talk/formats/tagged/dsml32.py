"""DSML of DeepSeek V3.2: the section has another name than in V4."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import Example, ResultForm
from twostroke.text.talk.formats.tagged import dsml

FORMAT = replace(
    dsml.FORMAT,
    name="dsml32",
    calls=dsml.calls_in("function_calls"),
    offer=("<｜DSML｜function_calls>",),
    result=ResultForm("user", "<function_results><result>", "</result></function_results>"),
    vocabulary=(),
)
EXAMPLES = (
    Example(
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="bell">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        calls=(("bell", "{}"),),
    ),
)
