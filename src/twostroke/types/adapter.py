"""An adapter as requests meet it."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class TakenAdapter(NamedTuple):
    """slot: its number in the arrays of the engine. salt: the same for the same content, and for no other adapter."""

    slot: int
    salt: str


class AdapterPlaces(Protocol):
    """What metrics say of adapters."""

    @property
    def places(self) -> int:
        """Adapters that can be used at once."""

    def name_of(self, slot: int) -> str:
        """The name of the adapter in a slot."""


NO_ADAPTER = TakenAdapter(-1, "")
"""What rows of the model alone have."""
