"""Images in a prompt: the positions that hold rows of a tile, and the keys by which their pages are found in the prefix
tree."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from twostroke.types.encode import PieceTime

IMAGE_PARTS = ("image_url", "input_image", "image")
"""Types of the parts of messages that hold images, in the words of each API."""


class SpanLayers(enum.Enum):
    """The layers of a language model in which the rows of an image see each other in both directions. WINDOWED: the
    layers with a window."""

    NONE = enum.auto()
    ALL = enum.auto()
    WINDOWED = enum.auto()


class PlacedPart(dict[str, Any]):
    """A part of a message that holds an image. where: the name of the part's field in the request, as the client wrote
    it."""

    def __init__(self, part: Mapping[str, Any], where: str) -> None:
        super().__init__(part)
        self.where = where


def is_image(part: object) -> bool:
    """Whether a part of a message's content holds an image."""
    return isinstance(part, Mapping) and part.get("type") in IMAGE_PARTS


def placed(content: Any, where: str) -> Any:
    """Returns the content with each image as a PlacedPart, whose field is for example `messages[0].content[1]`. where:
    the name of the content's field."""
    if not isinstance(content, list) or not any(map(is_image, content)):
        return content
    return [
        PlacedPart(part, f"{where}[{index}]") if is_image(part) and not isinstance(part, PlacedPart) else part
        for index, part in enumerate(content)
    ]


def with_places(messages: Sequence[Any]) -> list[Any]:
    """Returns the messages of a chat with each image as a PlacedPart, which has the name of the image's field in the
    request. An entry that is not a message stays unchanged."""
    made = []
    for place, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        found = placed(content, f"messages[{place}].content")
        made.append(message if found is content else {**message, "content": found})
    return made


class Patching(Struct, frozen=True):
    """How an encoder divides a tile. patch: the side of a patch in pixels. merge: the number of patches on each side of
    the square that becomes one image row. Pixels that do not fill a whole patch are left out, as a convolution does."""

    patch: int
    merge: int

    @property
    def unit(self) -> int:
        """The side, in pixels, of the square that one image row shows."""
        return self.patch * self.merge

    def lines(self, width: int, height: int) -> tuple[int, int]:
        """Returns the number of lines of image rows that a tile of this size becomes, and the number of rows in a line.
        """
        return height // self.patch // self.merge, width // self.patch // self.merge


class RowFold(Struct, frozen=True):
    """A place in the middle of an image encoder at which neighbouring patches become one row. layer: the number of the
    attention layer before this place. In this layer, a patch sees only the patches that become one row with it. side:
    the number of patches on each side of the square that becomes one row."""

    layer: int
    side: int

    @property
    def group(self) -> int:
        """The number of patches that become one row."""
        return self.side**2


class Sheet(Struct, frozen=True):
    """A grid of squares that show one picture together. Each square is encoded alone. The image rows of all squares are
    then read line by line across the whole grid.

    across, down: the number of squares in a line, and the number of lines of squares. side: the image rows along one
    side of a square. left, top, columns, lines: the part of the grid that is read, in image rows. width, height: the
    size, in image rows, to which this part is scaled. ends_lines: True where an extra row that ends a line comes after
    each line, False where one such row comes after all lines.
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
        """Returns a grid of one square with `side` image rows on each side. Only one row that ends a line is added,
        after all image rows, in place of one row for each line."""
        return cls(1, 1, side, 0, 0, side, side, side, side, ends_lines=False)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of lines, and the number of rows in a line, that the grid gives to the prompt. The rows that end
        lines are counted."""
        return (self.height, self.width + 1) if self.ends_lines else (1, self.width * self.height + 1)

    @property
    def squares(self) -> int:
        """The number of squares in the grid."""
        return self.across * self.down


class ImageTile(Struct, frozen=True, eq=False, weakref=True):
    """A rectangle that is encoded alone. key: a number below zero, made from everything that the tile's rows depend on
    (`key_of`), so that it can replace a token id where a prefix is looked up. lines, columns: the shape of the image
    rows that the tile becomes.

    pixels: height * width * 3 bytes, row after row, with the red, green and blue of each pixel next to each other.
    sheet: None for a tile that is one picture. Otherwise the tile is a grid of squares, which are encoded one after the
    other, and `sheet` describes this grid.
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
        """The number of image rows that the tile becomes."""
        return self.lines * self.columns


class Canvas(Struct, frozen=True):
    """Where a tile lies on its canvas: the plane on which a model places an image, the image's slices and the special
    tokens around them. Sizes and places are counted in image rows. lines, columns: the size of the plane. top, left,
    height, width: the part of the plane that the tile shows. ends: for the last tile of an image, the prompt position
    after the image's last special token; 0 for other tiles."""

    lines: int
    columns: int
    top: int
    left: int
    height: int
    width: int
    ends: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the tile shows the whole image and not a slice of it; such a tile is the first tile of the image."""
        return (self.height, self.width) == (self.lines, self.columns)


class ImageSpan(Struct, frozen=True, eq=False):
    """Positions [first, end) of a prompt, which hold image rows of one tile, in order. skipped: the number of the first
    of these rows in the tile. count: how many rows of the tile they are; 0 means all rows from `skipped` to the tile's
    last. together: True where the rows see each other, so that they are computed in one step. canvas: where the tile
    lies on the canvas of its image; None for models without a canvas."""

    first: int
    tile: ImageTile
    skipped: int = 0
    count: int = 0
    together: bool = False
    canvas: Canvas | None = None

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + (self.count or self.tile.rows - self.skipped)


def later_pairs(spans: Iterable[ImageSpan], start: int, end: int) -> int:
    """Returns the number of pairs of positions in [start, end) whose earlier position sees the later one. Rows of an
    image see each other where their span is `together`."""
    counts = [min(span.end, end) - max(span.first, start) for span in spans if span.together]
    return sum(count * (count - 1) // 2 for count in counts if count > 0)


class EncodedTiles(Struct, frozen=True):
    """The work of a step on images. keys: the keys of tiles whose rows were finished. seconds: the time of this work.
    times: the measured time of each piece that was computed. dropped: the keys of tiles whose rows are no longer kept.
    """

    keys: frozenset[int] = frozenset()
    seconds: float = 0.0
    times: tuple[PieceTime, ...] = ()
    dropped: frozenset[int] = frozenset()

    @property
    def pieces(self) -> int:
        """The number of pieces that were computed."""
        return len(self.times)

    def __add__(self, other: EncodedTiles) -> EncodedTiles:
        return EncodedTiles(
            self.keys | other.keys,
            self.seconds + other.seconds,
            self.times + other.times,
            self.dropped | other.dropped,
        )


NOTHING_ENCODED = EncodedTiles()


def key_of(digest: bytes) -> int:
    """Returns a digest as a negative number, which no token has as its id."""
    return -1 - int.from_bytes(digest, "big")


def keys_of(token_ids: Sequence[int], spans: Sequence[ImageSpan]) -> list[int]:
    """Returns the token ids, where each position that holds an image row has the key of its tile instead."""
    keys = list(token_ids)
    for span in spans:
        keys[span.first : span.end] = [span.tile.key] * (span.end - span.first)
    return keys
