"""The slot and the salt by which a request refers to an adapter. Requests with different salts never share pages of the
KV cache."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class TakenAdapter(NamedTuple):
    """An adapter that a request uses. slot: the adapter's number in the arrays of the engine. salt: a text that is the
    same for adapters with the same content, and different for all other adapters."""

    slot: int
    salt: str


class AdapterPlaces(Protocol):
    """The loaded adapters, as the metrics see them: the number of places for adapters, and the name of the adapter in
    each slot."""

    @property
    def places(self) -> int:
        """The number of adapters that can be used at the same time."""

    def name_of(self, slot: int) -> str:
        """The name of the adapter in a slot."""


NO_ADAPTER = TakenAdapter(-1, "")
"""The value for rows that the model computes without an adapter."""
