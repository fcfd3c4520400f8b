"""Qwen3-Coder, Qwen 3.5 to 3.8, Nemotron 3, Step 3.5, MiMo-V2: tags for the function and its parameters."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.tagged import TaggedNotation

_NOTATION = TaggedNotation(
    name_open="<function=",
    name_close=">\n",
    key_open="<parameter=",
    key_close=">",
    value_close="</parameter>",
    closing="</function>",
    pad="\n",
    between="\n",
    lead="<function=",
)
FORMAT = Format(
    "qwen3_coder",
    calls=(CallForm(_NOTATION, "<tool_call>\n", "\n</tool_call>", "\n"), hermes.CALL),
    thought=THINK,
    ends=("<|im_end|>",),
    result=ResultForm("user", "<tool_response>\n", "\n</tool_response>"),
    offer=("<function=",),
)
EXAMPLES = (
    Example(
        "I look.\n<tool_call>\n<function=shelf>\n<parameter=title>\nEmma\n</parameter>\n<parameter=copies>\n2\n"
        "</parameter>\n</function>\n</tool_call>",
        "I look.",
        calls=(("shelf", '{"title": "Emma", "copies": 2}'),),
    ),
    Example(
        "<function=hours>\n<parameter=day>\nMon\n</parameter>\n</function>\n</tool_call>",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        '<tool_call>\n{"name": "hours", "arguments": {"day": "Mon"}}\n</tool_call>',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example('<function=hours>{"day": "Mon"}</function>So.', "So.", calls=(("hours", '{"day": "Mon"}'),)),
    Example("<function=none>\n</function>", "<function=none>\n</function>"),
    Example(
        "<tool_call>\n<function=shelf>\n<parameter=title>\nEmma\n<parameter=copies>\n2\n</function>\n</tool_call>",
        calls=(("shelf", '{"title": "Emma", "copies": 2}'),),
    ),
    Example(
        "<tool_call>\n<function=shelf>\n<parameter=due>\nTrue\n</parameter>\n<parameter=place>\n{'row': None}\n"
        "</parameter>\n</function>\n</tool_call>",
        calls=(("shelf", '{"due": true, "place": {"row": null}}'),),
    ),
)
