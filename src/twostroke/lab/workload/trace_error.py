"""A broken line of a trace, as one clear error."""

from __future__ import annotations

from typing import Any

from twostroke.types.errors import ConfigError


class TraceError(ConfigError):
    """A trace cannot be read; `what` names the file, the line and what is wrong with it."""


def broken(source: str, line: int, why: str, expected: str) -> TraceError:
    """Makes the error of a broken line. line: the line's number, counted from 1."""
    return TraceError(f"{source}, line {line}: {why}.", why="The trace cannot be replayed as it is.", fix=expected)


def whole_number(value: Any, name: str) -> int:
    """Returns `value`, a whole number of at least 0. Raises ValueError with the name of the field for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value != int(value):
        raise ValueError(f"{name} is {_short(value)}, not a whole number")
    if value < 0:
        raise ValueError(f"{name} is {_short(value)}, below zero")
    return int(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
