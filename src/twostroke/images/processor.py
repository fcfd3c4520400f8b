"""How a family makes tiles of images and text around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.images.decoder import Step


class Cut(Struct, frozen=True):
    """What is made of one image. steps: the steps that child.py runs. sizes: width and height of each tile. columns,
    rows: how many columns and rows of tiles the image is cut into, 0 where it is one tile.
    """

    steps: tuple[Step, ...]
    sizes: tuple[tuple[int, int], ...]
    columns: int = 0
    rows: int = 0

    @property
    def num_bytes(self) -> int:
        """What the steps give."""
        return sum(3 * width * height for width, height in self.sizes)


class Processor(Protocol):
    """The rules of a family."""

    @property
    def settings(self) -> str:
        """All that changes pixels, as text: a part of each tile's key."""

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        """What each of 256 bytes means in red, green and blue."""

    @property
    def mark(self) -> str:
        """What the template writes for one image."""

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """What is made of an image of this size. low: with few tiles."""

    def text(self, cut: Cut, rows: int) -> str:
        """What stands in the prompt for an image. rows: image rows of a tile."""


def table(mean: Sequence[float], std: Sequence[float], factor: float) -> tuple[tuple[float, float, float], ...]:
    """What each byte means: (byte * factor - mean) / std."""
    rows = ([(byte * factor - m) / s for m, s in zip(mean, std, strict=True)] for byte in range(256))
    return tuple((red, green, blue) for red, green, blue in rows)
