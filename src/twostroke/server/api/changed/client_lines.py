"""Takes lines of metadata out of prompts: lines that a client writes into the prompt and that change with each request.

Claude Code begins the system text with a line for the provider's accounts:

    x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;

The line has the form of an HTTP header and is no text for a model. Its last value is different in each request. For
this reason a prefix cache would find nothing after the line. Only a line of a client that is listed here, in its exact
form, at the very beginning of the system text, is taken out; the answer's header names it. `--client-lines keep` leaves
all lines in place.

Nothing else is moved or removed: a date, for example, is text for the model, and a prompt without it is another prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from twostroke.types.notes import Notes

SYSTEMS = ("system", "developer")


class ClientLine(Struct, frozen=True):
    """A line of metadata that one client writes at the beginning of the system text. name: its name in the response
    header that reports what was taken out. pattern: a regular expression that matches the line."""

    name: str
    pattern: str


LINES = (
    ClientLine(
        "Claude Code's billing line",
        r"x-anthropic-billing-header:(?:[ \t]*[A-Za-z0-9_-]{1,64}=[^;\s]{0,256};)+[ \t]*\n?",
    ),
)


class ClientLines:
    """Removes lines of metadata from the beginning of the system text, such as Claude Code's billing line. LINES has
    the patterns of these lines. keep: True leaves all of them in place. Any thread may call the methods."""

    def __init__(self, *, keep: bool = False) -> None:
        self._patterns = () if keep else tuple((line.name, re.compile(line.pattern)) for line in LINES)

    def without(self, messages: Sequence[Mapping[str, Any]], notes: Notes) -> Sequence[Mapping[str, Any]]:
        """Returns the messages without a line of metadata (LINES) at the beginning of the system text. A message or a
        part that contained nothing else is left out. notes: gets the name of the line that was taken out."""
        first = messages[0] if messages else {}
        if not isinstance(first, Mapping) or first.get("role") not in SYSTEMS:
            return messages
        content = first.get("content")
        if isinstance(content, str):
            rest = self._rest(content, notes)
            if rest == content:
                return messages
            return [{**first, "content": rest}, *messages[1:]] if rest else messages[1:]
        part = content[0] if isinstance(content, list) and content else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(content, list) or not isinstance(part, Mapping) or not isinstance(text, str):
            return messages
        rest = self._rest(text, notes)
        if rest == text:
            return messages
        parts = [{**part, "text": rest}, *content[1:]] if rest else content[1:]
        return [{**first, "content": parts}, *messages[1:]] if parts else messages[1:]

    def _rest(self, text: str, notes: Notes) -> str:
        for name, pattern in self._patterns:
            found = pattern.match(text)
            if found is not None:
                notes.add(f"{name} was taken out of the system text, so that the prefix cache finds what follows")
                return text[found.end() :]
        return text
