"""Finds the modules to which a config refers. It may use names, ends of names, parts of names, and regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from twostroke.types.errors import CorruptModel

MAX_PATTERNS = 65_536
MAX_PATTERN_CHARACTERS = 1_000
REGEX = "re:"


def compiled(pattern: str, place: str) -> re.Pattern[str]:
    """Returns a regular expression of a config. Raises CorruptModel."""
    try:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise re.error(f"it has more than {MAX_PATTERN_CHARACTERS} characters")
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise CorruptModel(
            f"{place}: {pattern[:60]!r} is no regular expression.", why=f"{str(error)[:100]}.", fix="Correct it."
        ) from None


def name_list(values: Any, place: str) -> tuple[str, ...]:
    """Returns a list of names of a config; null gives an empty list. Raises CorruptModel."""
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) > MAX_PATTERNS or not all(isinstance(v, str) for v in values):
        raise CorruptModel(f"{place} must be a list of names.", fix="Download the model again.")
    return tuple(values)


def exactly(names: Iterable[str], module: str, place: str) -> bool:
    """Returns whether a name of compressed-tensors refers to the module: the whole name, or `re:` and an expression
    that fits the beginning of the module's name."""
    return any(
        bool(compiled(name[len(REGEX) :], place).match(module)) if name.startswith(REGEX) else name == module
        for name in names
    )
