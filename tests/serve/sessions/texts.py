"""Long texts with the form of agents' instructions, and small pictures. They are made here, the same in every run."""

from __future__ import annotations

from typing import Any

REQUESTS = 20
"""The number of requests of a session, with the asides."""
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_VERBS = "read write run check plan explain change test build keep".split()
_THINGS = "files commands tests answers paths errors limits tools notes branches".split()
_WAYS = "carefully once in order before after briefly without guessing as asked together".split(" ")


def rules(about: str, characters: int) -> str:
    """Instructions of about this length, with headings and lists."""
    made, number = f"# {about}\n", 0
    while len(made) < characters:
        verb, thing, way = (words[(number * step) % len(words)] for words, step in zip(
            (_VERBS, _THINGS, _WAYS), (3, 7, 1), strict=True))
        if number % 9 == 0:
            made += f"\n## {verb.title()} {thing}\n"
        made += f"- Rule {number}: {verb} {thing} {way}; say so where it cannot be done.\n"
        number += 1
    return made


def output(turn: int) -> str:
    """The output of a tool at one turn."""
    return f"src/part_{turn}.py:{turn * 7}: def part_{turn}(value: int) -> int:\n    return value + {turn}\n"


def picture_url() -> str:
    """A picture as a data URL."""
    return f"data:image/png;base64,{PICTURE}"


def schema(*names: str, required: int = 1) -> dict[str, Any]:
    """A JSON schema with these text properties."""
    properties = {name: {"type": "string", "description": f"The {name.replace('_', ' ')} to use"} for name in names}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": properties,
        "required": list(names[:required]),
        "additionalProperties": False,
    }
