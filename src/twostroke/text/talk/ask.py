"""Formats that a user names, which replace the formats that were found, and a description of a format for people."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.talk.write import written
from twostroke.types.errors import ConfigError

NONE = "none"


def asked_format(found: Format, tools: str | None = None, reasoning: str | None = None) -> Format:
    """Returns the format that was found, with calls or thoughts in the named formats. Raises ConfigError."""
    made = found
    if tools is not None:
        thought = found.thought if _named(tools, "tool_format").messages is None else None
        made = structs.replace(_named(tools, "tool_format"), thought=thought, note="the operator named it")
    if reasoning == NONE:
        return structs.replace(made, thought=None)
    if reasoning is not None:
        marks = _named(reasoning, "reasoning_format").thought
        if marks is None:
            raise ConfigError(f"The format {reasoning} has no marks of thoughts.", fix="Name another one, or none.")
        made = structs.replace(made, thought=marks)
    return made


def lines_of(form: Format) -> Iterator[tuple[str, str]]:
    """Returns a description of the format, as pairs of a name and a text."""
    yield "format", form.name
    yield "found", form.note or "by default"
    if form.thought is not None:
        yield "thought", f"{form.thought.opening!r} to {form.thought.closing!r}"
    elif form.thinks:
        yield "thought", "a message of its own"
    else:
        yield "thought", NONE
    if form.calls:
        yield "call", repr(written(form, [("NAME", {"KEY": "VALUE"}, form.ids.new("a1b2c3d4e5" * 3, "NAME", 0))]))
    yield "ends", " ".join(form.ends) or "those of the model's configuration"


def _named(name: str, option: str) -> Format:
    found = FORMATS.get(name)
    if found is None:
        flag = "--" + option.replace("_", "-")
        raise ConfigError(f"{flag} {name[:40]!r} is no format.", fix=f"Use one of {', '.join(sorted(FORMATS))}.")
    return found
