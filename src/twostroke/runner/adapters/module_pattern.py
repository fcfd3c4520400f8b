"""Regular expressions over names of modules, matched in bounded time.

Files of adapters hold regular expressions from untrusted authors, and Python's `re` takes exponential time for some of
them. This module lets Python parse an expression. The expression is then matched without going back: each part turns
the set of places where it may begin into the set where it may end. An expression that takes more than MAX_STEPS is
refused, and so are look-around, back-references and the like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from twostroke.types.errors import UnsupportedModel

MAX_PATTERN_CHARACTERS = 4096
MAX_STEPS = 100_000

Places = frozenset[int]
ONE_CHARACTER = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
BEGINNINGS, ENDS = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING"}), frozenset({"AT_END", "AT_END_STRING"})
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_NOT_DIGIT": lambda character: not character.isdigit(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda character: not character.isspace(),
    "CATEGORY_WORD": lambda character: character.isalnum() or character == "_",
    "CATEGORY_NOT_WORD": lambda character: not (character.isalnum() or character == "_"),
}


class ModulePattern:
    """An expression that must match whole names, as with `re.fullmatch`. Raises ValueError for an expression that is
    not supported."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN_CHARACTERS:
            raise ValueError(f"it is longer than {MAX_PATTERN_CHARACTERS:,} characters")
        try:
            self._tree = _parser.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"it is no regular expression: {error}") from None
        if self._tree.state.flags & ~re.UNICODE:
            raise ValueError("it holds flags, which are not supported")
        self._text, self._steps = text, 0
        _check(self._tree)

    def matches(self, name: str) -> bool:
        """Returns whether the expression matches all of the name. Raises UnsupportedModel where that takes too many
        steps."""
        self._steps = 0
        return len(name) in self._ends(self._tree, name, frozenset({0}))

    def _ends(self, items: Iterable[Any], name: str, starts: Places) -> Places:
        """Matches parts of an expression, one after the other, and returns the places in `name` where the match may
        end. items: the parts, as Python's `re` parsed them. starts: the places where the match may begin."""
        for kind, value in items:
            if not starts:
                break
            starts = self._end(str(kind), value, name, starts)
        return starts

    def _end(self, kind: str, value: Any, name: str, starts: Places) -> Places:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise UnsupportedModel(
                f"The regular expression {self._text[:80]!r} takes too many steps.", fix="Write a simpler one."
            )
        if kind in ONE_CHARACTER:
            return frozenset(at + 1 for at in starts if at < len(name) and _is_one(kind, value, name[at]))
        if kind == "BRANCH":
            return frozenset().union(*(self._ends(branch, name, starts) for branch in value[1]))
        if kind == "SUBPATTERN":
            return self._ends(value[3], name, starts)
        if kind == "AT":
            return starts & {0 if str(value) in BEGINNINGS else len(name)}
        return self._repeated(value, name, starts)

    def _repeated(self, value: Any, name: str, starts: Places) -> Places:
        least, most, items = int(value[0]), int(value[1]), value[2]
        for _ in range(least):
            before, starts = starts, self._ends(items, name, starts)
            if starts == before:
                break
        found, fresh = starts, starts
        for _ in range(min(most - least, len(name) + 1)):
            fresh = self._ends(items, name, fresh) - found
            found |= fresh
        return found


def _check(items: Iterable[Any]) -> None:
    """Raises ValueError where a parsed regular expression has a part that this module does not support. items: the
    parts."""
    for kind, value in items:
        word, inner = str(kind), []
        if word == "BRANCH":
            inner = value[1]
        elif word == "SUBPATTERN" and not value[1] and not value[2]:
            inner = [value[3]]
        elif word in ("MAX_REPEAT", "MIN_REPEAT"):
            inner = [value[2]]
        elif word not in ONE_CHARACTER and not (word == "AT" and str(value) in BEGINNINGS | ENDS):
            raise ValueError(f"it holds {word.lower().replace('_', ' ')}, which is not supported")
        for each in inner:
            _check(each)


def _is_one(kind: str, value: Any, character: str) -> bool:
    if kind == "ANY":
        return character != "\n"
    if kind in ("LITERAL", "NOT_LITERAL"):
        return bool(ord(character) == value) == (kind == "LITERAL")
    inverted = str(value[0][0]) == "NEGATE"
    return any(_in_set(str(part), item, character) for part, item in value[inverted:]) != inverted


def _in_set(kind: str, value: Any, character: str) -> bool:
    if kind == "LITERAL":
        return bool(ord(character) == value)
    if kind == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    return bool(_CATEGORIES[str(value)](character))


@lru_cache(maxsize=1024)
def module_pattern(text: str) -> ModulePattern:
    """Returns the parsed form of a regular expression over module names; the same text is parsed only once. Raises
    ValueError for an expression that is not supported."""
    return ModulePattern(text)
