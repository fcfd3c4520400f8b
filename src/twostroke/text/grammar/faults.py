"""Translates the compiler's messages about a grammar into the terms of the user who wrote it."""

from __future__ import annotations

import re

MAX_FAULT_CHARACTERS = 400
_LISTING = re.compile(r"\d+ \||<non-verbose/>")
_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_TERMS: tuple[tuple[str, str], ...] = (
    (r"NoExtension.*", "no text can fit it"),
    (r"Unimplemented keys: \[(?P<keys>.*)\]", "the keywords {keys} are not supported."),
    (r"Unsatisfiable schema: (?P<why>.*)", "no value can fit it: {why}."),
    (r"Pointer '(?P<at>.*)' does not exist", "a $ref leads to {at}, and there is nothing."),
    (
        r"Resource '(?P<at>.*)' is not present in a registry.*",
        "a $ref leads to {at}; only references inside the schema are followed.",
    ),
    (
        r"oneOf constraints are not supported.*",
        "the alternatives of a oneOf must exclude one another, as by a property with a constant of its own in each; "
        "use anyOf.",
    ),
    (
        r"regex parse error: (?P<pattern>.*?) \^+ error: (?P<why>.*)",
        "the pattern {pattern} cannot be read: {why}.",
    ),
    (r"Failed to generate regex for (?P<kind>\w+) range.*", "the bounds of a number are too far apart."),
    (
        r"lookarounds not supported yet; \w+ in regex (?P<pattern>.*)",
        "the pattern {pattern} has an anchor or a word boundary in its middle, which is not supported.",
    ),
)


def in_users_terms(fault: str) -> str:
    """Returns the fault as one line, without the compiler's listing of the text."""
    lines = (line.strip() for line in fault.splitlines())
    kept = [line for line in lines if line and line != "^" and not _LISTING.match(line)]
    message = _PLACE.sub("", " ".join(kept))
    for pattern, words in _TERMS:
        found = re.fullmatch(pattern, message)
        if found is not None:
            message = words.format(**found.groupdict())
            break
    return message[:MAX_FAULT_CHARACTERS]
