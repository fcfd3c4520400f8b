"""Mistral v11 and v13: Small 3.2, Devstral, Magistral 2509, Ministral 3, Large 3."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.objects.mistral_list import IDS, LIST, NAMED
from twostroke.text.talk.formats.thoughts import BRACKETS
from twostroke.text.talk.notations.named import NamedNotation

_PLAIN = CallForm(NamedNotation("[ARGS]", id_open="[CALL_ID]", writes_id=False), open="[TOOL_CALLS]")
FORMAT = Format(
    "mistral",
    calls=(_PLAIN, NAMED, LIST),
    thought=BRACKETS,
    ids=IDS,
    ends=("</s>",),
    result=ResultForm("tool", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    vocabulary=("[TOOL_CALLS]", "[ARGS]"),
)
EXAMPLES = (
    Example(
        '[THINK]Which day?[/THINK]I look.[TOOL_CALLS]hours[ARGS]{"day": "Mon"}[TOOL_CALLS]bell[ARGS]{}',
        "I look.",
        "Which day?",
        (("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example(
        '[TOOL_CALLS]hours[CALL_ID]k3j5h7g9f[ARGS]{"day": "Mon"}', calls=(("hours", '{"day": "Mon"}', "k3j5h7g9f"),)
    ),
    Example("[TOOL_CALLS]bell{}", calls=(("bell", "{}"),)),
)
