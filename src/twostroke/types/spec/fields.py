"""Typed, range-checked reading of a JSON object from an untrusted source."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from twostroke.types.errors import CorruptModel

_Value = TypeVar("_Value", int, float)

MADE_OF = {
    "head_dim": ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads", "attention_heads"),
    "num_key_value_heads": ("num_attention_heads", "n_head", "n_heads"),
    "layer_types": ("num_hidden_layers", "sliding_window"),
}
"""Maps a member that config.json may leave out to the members from which its value is then computed. Each of these is
listed under all its possible names."""
FIX = "Compare it with the model's original page, or download the model again."


@dataclass(frozen=True, slots=True)
class Fields:
    """The members of one JSON object. place: the object's name in messages ("config.json", "config.json:
    rope_scaling").

    A member that is null counts as absent, except for `has`. Every reader raises CorruptModel that names the field.
    read: the names of the members that were read so far, also through objects that `changed` made from this one.
    """

    values: Mapping[str, Any]
    place: str
    read: set[str] = field(default_factory=set, compare=False, repr=False)

    def has(self, name: str) -> bool:
        """Returns whether the member exists, null or not."""
        self.read.add(name)
        return name in self.values

    def value(self, name: str, default: Any = None) -> Any:
        """Returns the member unchanged; `default` where it is absent."""
        self.read.add(name)
        return self.values.get(name, default)

    def changed(self, values: Mapping[str, Any]) -> Fields:
        """Returns these members with those of `values` in their place. Names read from the new object count as read
        from this object too."""
        return replace(self, values={**self.values, **values})

    def only(self, values: Mapping[str, Any]) -> Fields:
        """Returns an object with `values` in place of all members. Names read from the new object count as read from
        this object too."""
        return replace(self, values=values)

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Returns a whole number in [low, high]; `default` where the member is absent. Raises CorruptModel where the
        member is absent and there is no default, or the default is above `high`."""
        found = self.optional_integer(name, low, high)
        if found is None and default is not None and default > high:
            raise self.wrong(name, f"It is absent, which means {default:,}, and the largest allowed value is {high:,}.")
        return self._required(name, default) if found is None else found

    def optional_integer(self, name: str, low: int, high: int) -> int | None:
        """Returns a whole number in [low, high], or None where the member is absent."""
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"It must be a whole number from {low:,} to {high:,}.")
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """Returns a finite number in [low, high]. The member is required where there is no default."""
        found = self.optional_number(name, low, high)
        return self._required(name, default) if found is None else found

    def optional_number(self, name: str, low: float, high: float) -> float | None:
        """Returns a finite number in [low, high], or None where the member is absent."""
        value = self.value(name)
        if value is None:
            return None
        if not _is_number_in(value, low, high):
            raise self.wrong(name, f"It must be a number from {low:g} to {high:g}.")
        return float(value)

    def numbers(self, name: str, count: int, low: float, high: float) -> tuple[float, ...]:
        """Returns a list of exactly `count` finite numbers in [low, high]. The member is required."""
        value = self.value(name)
        good = isinstance(value, list) and len(value) == count and all(_is_number_in(item, low, high) for item in value)
        if not good or value is None:
            raise self.wrong(name, f"It must be a list of {count} numbers from {low:g} to {high:g}.")
        return tuple(float(item) for item in value)

    def boolean(self, name: str, default: bool) -> bool:
        """Returns true or false; `default` where the member is absent."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "It must be true or false.")
        return value

    def text(self, name: str, default: str) -> str:
        """Returns a string; `default` where the member is absent."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "It must be a string.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of strings; empty where the member is absent."""
        value = self.value(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "It must be a list of strings.")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns a whole number or a list of whole numbers as a tuple; empty where the member is absent."""
        value = self.value(name)
        if value is None:
            return ()
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, bool) or not isinstance(item, int) for item in items):
            raise self.wrong(name, "It must be a whole number or a list of them.")
        return tuple(items)

    def group(self, name: str) -> Fields | None:
        """Returns the member as an object, or None where it is absent or empty."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "It must be an object.")
        return Fields(value, f"{self.place}: {name}") if value else None

    def wrong(self, name: str, why: str) -> CorruptModel:
        """Returns the error for a member with an impossible value. For an absent member, the message names the members
        from which its value follows."""
        found = self.values.get(name)
        if found is not None:
            return CorruptModel(f"{self.place}: {name} is {reprlib.repr(found)}.", why=why, fix=FIX)
        known = [own for own in MADE_OF.get(name, ()) if self.values.get(own) is not None]
        shown = " and ".join(f"{own} {reprlib.repr(self.values[own])}" for own in known)
        what = f"{'null' if name in self.values else 'absent'}{f', so it follows from {shown}' if shown else ''}"
        return CorruptModel(f"{self.place}: {name} is {what}.", why=why, fix=FIX)

    def _required(self, name: str, default: _Value | None) -> _Value:
        if default is None:
            raise CorruptModel(f"{self.place}: {name} is missing.", why="No model can be built without it.", fix=FIX)
        return default


def _is_number_in(value: object, low: float, high: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return low <= value <= high and math.isfinite(value)
