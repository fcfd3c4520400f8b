"""The format of a model whose files show none: calls in the notations to which models fall back. A text counts as a
call only if it names an offered tool."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import CallForm, Example
from twostroke.text.talk.formats.objects import hermes
from twostroke.text.talk.notations.object import ObjectNotation
from twostroke.text.talk.notations.pythonic import PythonicNotation

FORMAT = replace(
    hermes.FORMAT,
    name="common",
    calls=(
        hermes.CALL,
        CallForm(ObjectNotation(), between=", ", listed=True),
        CallForm(PythonicNotation(), between=", ", listed=True),
        CallForm(ObjectNotation(), between="\n"),
    ),
)
EXAMPLES = (
    Example('<tool_call>\n{"name": "bell", "arguments": {}}\n</tool_call>', calls=(("bell", "{}"),)),
    Example('[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example('[hours(day="Mon"), bell()]', calls=(("hours", '{"day": "Mon"}'), ("bell", "{}"))),
    Example("[1, 2]", "[1, 2]"),
)
