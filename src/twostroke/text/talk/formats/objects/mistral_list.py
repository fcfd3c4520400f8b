"""Mistral 7B v0.3 to Small 3.1: the calls of a turn are one JSON list of objects after `[TOOL_CALLS]`."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.ids import CallIds
from twostroke.text.talk.notations.named import NamedNotation
from twostroke.text.talk.notations.object import ObjectNotation

IDS = CallIds("", 9, exact=True)
LIST = CallForm(ObjectNotation(call_id="id"), begin="[TOOL_CALLS] ", between=", ", listed=True)
NAMED = CallForm(NamedNotation("[ARGS]", id_open="[CALL_ID]"), open="[TOOL_CALLS]")
FORMAT = Format(
    "mistral_list",
    calls=(LIST, NAMED),
    ids=IDS,
    ends=("</s>",),
    result=ResultForm("tool", '[TOOL_RESULTS] {{"content": ', ', "call_id": "{id}"}}[/TOOL_RESULTS]'),
    vocabulary=("[TOOL_CALLS]", "[AVAILABLE_TOOLS]"),
)
EXAMPLES = (
    Example(
        '[TOOL_CALLS] [{"name": "hours", "arguments": {"day": "Mon"}, "id": "k3j5h7g9f"}]',
        calls=(("hours", '{"day": "Mon"}', "k3j5h7g9f"),),
    ),
    Example(
        '[TOOL_CALLS][{"name": "hours", "arguments": {"day": "Mon"}}, {"name": "bell", "arguments": {}}]Done.',
        "Done.",
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example("See [TOOL_CALLS] and [1]", "See [TOOL_CALLS] and [1]"),
)
