"""Sight: how many patches and image rows a tile of an encoder has."""

from __future__ import annotations

from msgspec import Struct


class Sight(Struct, frozen=True):
    """family: the family of the processor and of the marks in prompts. placeholder: the token id that stands where
    image rows go.

    side: the side of a tile, in pixels. patch: the side of a patch in pixels. merge: patches of one side that become
    one image row.
    """

    family: str
    placeholder: int
    side: int
    patch: int
    merge: int

    @property
    def grid(self) -> int:
        """Patches of one side of a tile. Pixels that make no whole patch are left out, as by a convolution."""
        return self.side // self.patch

    @property
    def patches(self) -> int:
        """Patches of a tile."""
        return self.grid**2

    @property
    def rows(self) -> int:
        """Image rows of a tile."""
        return (self.grid // self.merge) ** 2
