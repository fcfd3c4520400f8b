"""An adapter as requests meet it."""

from __future__ import annotations

from typing import NamedTuple


class TakenAdapter(NamedTuple):
    """slot: its number in the arrays of the engine. salt: the same for the same content, and for no other adapter."""

    slot: int
    salt: str


NO_ADAPTER = TakenAdapter(-1, "")
"""What rows of the model alone have."""
