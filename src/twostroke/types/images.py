"""Images in a prompt: which positions hold rows of a tile, and by which key pages that hold them are found again."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

IMAGE_PARTS = ("image_url", "input_image", "image")
"""Types of the parts of messages that hold images, in the words of each API."""


class SpanLayers(enum.Enum):
    """Layers of a language model in which the rows of an image see each other in both directions. WINDOWED: those with
    a window."""

    NONE = enum.auto()
    ALL = enum.auto()
    WINDOWED = enum.auto()


class PlacedPart(dict[str, Any]):
    """A part of a message that holds an image. where: the field of the request, as its client wrote it."""

    def __init__(self, part: Mapping[str, Any], where: str) -> None:
        super().__init__(part)
        self.where = where


def is_image(part: object) -> bool:
    """Whether a part of a message's content holds an image."""
    return isinstance(part, Mapping) and part.get("type") in IMAGE_PARTS


def placed(content: Any, where: str) -> Any:
    """A content whose images know their fields, as `messages[0].content[1]`. where: the field of the content."""
    if not isinstance(content, list) or not any(map(is_image, content)):
        return content
    return [
        PlacedPart(part, f"{where}[{index}]") if is_image(part) and not isinstance(part, PlacedPart) else part
        for index, part in enumerate(content)
    ]


def with_places(messages: Sequence[Any]) -> list[Any]:
    """Messages of a chat, whose images know their fields. What is no message stays as it is."""
    made = []
    for place, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        found = placed(content, f"messages[{place}].content")
        made.append(message if found is content else {**message, "content": found})
    return made


class Patching(Struct, frozen=True):
    """How an encoder divides a tile. patch: the side of a patch in pixels. merge: patches of one side that become one
    image row. Pixels that make no whole patch are left out, as by a convolution."""

    patch: int
    merge: int

    @property
    def unit(self) -> int:
        """The side, in pixels, of what one image row shows."""
        return self.patch * self.merge

    def lines(self, width: int, height: int) -> tuple[int, int]:
        """How many lines of image rows a tile of this size becomes, and how many rows a line has."""
        return height // self.patch // self.merge, width // self.patch // self.merge


class Sheet(Struct, frozen=True):
    """A grid of squares that show one picture together. Each is encoded alone, and their rows are read line by line.

    across, down: squares of a line, and lines of them. side: image rows of one side of a square. left, top, columns,
    lines: the part of the grid that is read, in image rows. width, height: the size that this part is fitted to.
    ends_lines: whether the row that ends a line stands after each line, or once after all of them.
    """

    across: int
    down: int
    side: int
    left: int
    top: int
    columns: int
    lines: int
    width: int
    height: int
    ends_lines: bool = True

    @classmethod
    def alone(cls, side: int) -> Sheet:
        """One square, and one row after it."""
        return cls(1, 1, side, 0, 0, side, side, side, side, ends_lines=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Lines of image rows, and rows of a line."""
        return (self.height, self.width + 1) if self.ends_lines else (1, self.width * self.height + 1)

    @property
    def squares(self) -> int:
        """How many there are."""
        return self.across * self.down


class ImageTile(Struct, frozen=True, eq=False, weakref=True):
    """A rectangle that is encoded alone. key: below zero, made of all that its rows depend on (`key_of`), so it stands
    for a token id where a prefix is looked up. lines, columns: the image rows that it becomes, as they lie in it.

    pixels: height * width * 3 bytes, row after row, red, green and blue of each pixel next to each other. sheet: where
    it is a grid of squares, which are encoded one after the other.
    """

    key: int
    lines: int
    columns: int
    width: int
    height: int
    pixels: bytes
    sheet: Sheet | None = None

    @property
    def rows(self) -> int:
        """How many image rows it becomes."""
        return self.lines * self.columns


class ImageSpan(Struct, frozen=True, eq=False):
    """Positions [first, end) of a prompt, which hold rows of a tile in order, from row `skipped` on. count: how many;
    0 for all that follow. together: whether the rows see each other, so that they are computed in one step."""

    first: int
    tile: ImageTile
    skipped: int = 0
    count: int = 0
    together: bool = False

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + (self.count or self.tile.rows - self.skipped)


class EncodedTiles(Struct, frozen=True):
    """What a step encoded. keys: tiles whose rows were finished. seconds: those of all pieces. predicted_s: what they
    were predicted to take. pieces: how many. dropped: tiles whose rows are kept no longer."""

    keys: frozenset[int] = frozenset()
    seconds: float = 0.0
    predicted_s: float = 0.0
    pieces: int = 0
    dropped: frozenset[int] = frozenset()

    def __add__(self, other: EncodedTiles) -> EncodedTiles:
        return EncodedTiles(
            self.keys | other.keys,
            self.seconds + other.seconds,
            self.predicted_s + other.predicted_s,
            self.pieces + other.pieces,
            self.dropped | other.dropped,
        )


NOTHING_ENCODED = EncodedTiles()


def key_of(digest: bytes) -> int:
    """A digest as a number that no token has."""
    return -1 - int.from_bytes(digest, "big")


def keys_of(token_ids: Sequence[int], spans: Sequence[ImageSpan]) -> list[int]:
    """The token ids, with the key of its tile at each position that holds an image row."""
    keys = list(token_ids)
    for span in spans:
        keys[span.first : span.end] = [span.tile.key] * (span.end - span.first)
    return keys
