"""xLAM 2, Hammer 2.1: the calls of a turn are a JSON list without tags. A list counts as calls if it names tools."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.notations.object import ObjectNotation

FORMAT = Format(
    "xlam",
    calls=(
        CallForm(ObjectNotation(), between=", ", listed=True),
        hermes.LISTED,
        CallForm(ObjectNotation(), between=", ", begin="[TOOL_CALLS]", listed=True),
    ),
    offer=("JSON array", '[{"name": "tool_call_name"', "a list of JSON objects"),
)
EXAMPLES = (
    Example('<tool_call>[{"name": "bell", "arguments": {}}]</tool_call>', calls=(("bell", "{}"),)),
    Example('[TOOL_CALLS][{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example('[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example("[1, 2]", "[1, 2]"),
    Example('[{"name": "Bob"}]', '[{"name": "Bob"}]'),
    Example('```json\n[{"name": "bell", "arguments": {}}]\n```', calls=(("bell", "{}"),)),
    Example("```json\n[1]\n```", "```json\n[1]\n```"),
)
