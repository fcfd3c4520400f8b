"""Mistral v11: the id of a call stands between the tool's name and the arguments."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import Example
from twostroke.text.talk.formats.named import mistral
from twostroke.text.talk.formats.objects.mistral_list import LIST, NAMED

FORMAT = replace(
    mistral.FORMAT, name="mistral_ids", calls=(NAMED, LIST), vocabulary=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
)
EXAMPLES = (
    Example(
        'I look.[TOOL_CALLS]hours[CALL_ID]k3j5h7g9f[ARGS]{"day": "Mon"}',
        "I look.",
        calls=(("hours", '{"day": "Mon"}', "k3j5h7g9f"),),
    ),
)
