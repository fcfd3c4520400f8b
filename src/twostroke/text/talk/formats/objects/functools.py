"""Firefunction v2: the calls of a turn are a JSON list after the word `functools`."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format
from twostroke.text.talk.notations.object import ObjectNotation

FORMAT = Format(
    "functools",
    calls=(CallForm(ObjectNotation(), between=", ", begin=" functools", listed=True),),
    offer=("functools[",),
)
EXAMPLES = (
    Example(' functools[{"name": "bell", "arguments": {}}]', calls=(("bell", "{}"),)),
    Example("Use functools in Python.", "Use functools in Python."),
)
