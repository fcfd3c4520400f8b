"""The slot and the salt by which a request refers to an adapter."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class TakenAdapter(NamedTuple):
    """An adapter that a request uses. slot: the adapter's number in the arrays of the engine. salt: a text that is the
    same for adapters with the same content, and different for all other adapters."""

    slot: int
    salt: str


class AdapterPlaces(Protocol):
    """What the metrics need to know about the loaded adapters."""

    @property
    def places(self) -> int:
        """The number of adapters that can be used at the same time."""

    def name_of(self, slot: int) -> str:
        """The name of the adapter in a slot."""


NO_ADAPTER = TakenAdapter(-1, "")
"""The value for rows that the model computes without an adapter."""
