"""Images in a prompt: which positions hold rows of a tile, and by which key pages that hold them are found again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class ImageTile(Struct, frozen=True, eq=False):
    """A rectangle that is encoded alone. key: below zero, made of all that its rows depend on (`key_of`), so it stands
    for a token id where a prefix is looked up. rows: how many image rows it becomes.

    pixels: height * width * 3 bytes, row after row, red, green and blue of each pixel next to each other.
    """

    key: int
    rows: int
    width: int
    height: int
    pixels: bytes


class ImageSpan(Struct, frozen=True, eq=False):
    """Positions [first, end) of a prompt, which hold the rows of a tile in order."""

    first: int
    tile: ImageTile

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + self.tile.rows


class EncodedTiles(Struct, frozen=True):
    """What a step encoded: keys of tiles whose rows were finished, and the seconds of all pieces."""

    keys: frozenset[int] = frozenset()
    seconds: float = 0.0


NOTHING_ENCODED = EncodedTiles()


def key_of(digest: bytes) -> int:
    """A digest as a number that no token has."""
    return -1 - int.from_bytes(digest, "big")


def keys_of(token_ids: Sequence[int], spans: Sequence[ImageSpan]) -> list[int]:
    """The token ids, with the key of its tile at each position that holds an image row."""
    keys = list(token_ids)
    for span in spans:
        keys[span.first : span.end] = [span.tile.key] * span.tile.rows
    return keys
