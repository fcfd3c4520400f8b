"""Typed, range-checked reading of a JSON object from an untrusted source.

Knows: JSON types, ranges, how to say what is wrong with a field.
Must not know: which fields there are, files.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct

from twostroke.types.errors import CorruptModel

_Value = TypeVar("_Value", int, float)

FIX = "Compare it with the model's original page, or download the model again."


class Fields(Struct, frozen=True):
    """The members of one JSON object; `place` names it in messages ("config.json", "config.json: rope_scaling").

    A member that is null counts as absent, except for `has`. Every reader raises CorruptModel that names the field.
    """

    values: Mapping[str, Any]
    place: str

    def has(self, name: str) -> bool:
        """Is the member there, null or not?"""
        return name in self.values

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number in [low, high]; required where there is no default, or where the default is above `high`."""
        found = self.optional_integer(name, low, high)
        if found is None and default is not None and default > high:
            raise self.wrong(name, f"It is absent, which means {default:,}, and at most {high:,} can be.")
        return self._required(name, default) if found is None else found

    def optional_integer(self, name: str, low: int, high: int) -> int | None:
        """A whole number in [low, high], or None where the member is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"It must be a whole number from {low:,} to {high:,}.")
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number in [low, high]; required where there is no default."""
        found = self.optional_number(name, low, high)
        return self._required(name, default) if found is None else found

    def optional_number(self, name: str, low: float, high: float) -> float | None:
        """A finite number in [low, high], or None where the member is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not _is_number_in(value, low, high):
            raise self.wrong(name, f"It must be a number from {low:g} to {high:g}.")
        return float(value)

    def numbers(self, name: str, count: int, low: float, high: float) -> tuple[float, ...]:
        """A list of exactly `count` finite numbers in [low, high]; required."""
        value = self.values.get(name)
        good = isinstance(value, list) and len(value) == count and all(_is_number_in(item, low, high) for item in value)
        if not good or value is None:
            raise self.wrong(name, f"It must be a list of {count} numbers from {low:g} to {high:g}.")
        return tuple(float(item) for item in value)

    def boolean(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "It must be true or false.")
        return value

    def text(self, name: str, default: str) -> str:
        """A string."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "It must be a string.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where the member is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "It must be a list of strings.")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        """A whole number or a list of them; empty where the member is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, bool) or not isinstance(item, int) for item in items):
            raise self.wrong(name, "It must be a whole number or a list of them.")
        return tuple(items)

    def group(self, name: str) -> Fields | None:
        """The member as an object, or None where it is absent or empty."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "It must be an object.")
        return Fields(value, f"{self.place}: {name}") if value else None

    def wrong(self, name: str, why: str) -> CorruptModel:
        """The error for a member with an impossible value."""
        return CorruptModel(f"{self.place}: {name} is {reprlib.repr(self.values.get(name))}.", why=why, fix=FIX)

    def _required(self, name: str, default: _Value | None) -> _Value:
        if default is None:
            raise CorruptModel(f"{self.place}: {name} is missing.", why="No model can be built without it.", fix=FIX)
        return default


def _is_number_in(value: object, low: float, high: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return low <= value <= high and math.isfinite(value)
