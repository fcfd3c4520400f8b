"""The rules by which a family of vision models cuts images into tiles, and the text around the tiles in a prompt. An
image row is one embedding that the encoder makes for the language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from msgspec import Struct

from twostroke.images.decoding.decoder import Step
from twostroke.types.errors import InvalidRequest
from twostroke.types.images import Canvas, Patching, Sheet
from twostroke.types.spec.fields import Fields

NEAREST, LANCZOS, BILINEAR, BICUBIC = range(4)
"""The numbers that Pillow has for its resizing filters."""
MOST_FILTER = 5
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation of the colours that CLIP was trained with."""
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


class Tiling(Struct, frozen=True):
    """What a model allows its processor. side: the side of all tiles in pixels; 0 where the image decides. most_rows:
    the most image rows (embeddings) of a tile. grids: heights and widths in pixels of the grids of tiles that the model
    knows. most_tiles: the image rows of a grid are reduced to about as many as this number of tiles has; 0 for no
    bound. apart: whether each image of a prompt with several images becomes one tile. canvas: whether the tiles of an
    image have positions on a canvas, the plane of the whole image."""

    patching: Patching
    side: int
    most_rows: int
    grids: tuple[tuple[int, int], ...] = ()
    most_tiles: int = 0
    apart: bool = False
    canvas: bool = False


class Cut(Struct, frozen=True):
    """How one image becomes tiles. steps: the steps that the child process (child.py) runs. sizes: width and height of
    each tile. columns, rows: the columns and rows of tiles, 0 where the image is one tile. sheets: for each tile, a
    Sheet if the tile consists of squares that are encoded one by one, None if it is encoded as a whole."""

    steps: tuple[Step, ...]
    sizes: tuple[tuple[int, int], ...]
    columns: int = 0
    rows: int = 0
    sheets: tuple[Sheet | None, ...] = ()

    def lines(self, patching: Patching) -> list[tuple[int, int]]:
        """Returns (lines, rows in a line) of the image rows (embeddings) that each tile becomes."""
        found = []
        for place, (width, height) in enumerate(self.sizes):
            sheet = self.sheets[place] if self.sheets else None
            found.append(patching.lines(width, height) if sheet is None else sheet.shape)
        return found

    @property
    def num_bytes(self) -> int:
        """The number of bytes of all tiles, with three bytes a pixel."""
        return sum(3 * width * height for width, height in self.sizes)


def one_tile(width: int, height: int, word: int) -> Cut:
    """Returns the cut that shows the whole image in this size. word: the number that Pillow has for the resizing
    filter."""
    return Cut((("whole", width, height, word),), ((width, height),))


class Processor(Protocol):
    """Prepares images for one family of vision models. It decides how an image is cut into tiles, the values of its
    pixels, and the text that stands for it in a prompt."""

    @property
    def settings(self) -> str:
        """A text with every setting that changes pixels. It is hashed into the key of each tile."""

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        """For each byte 0 .. 255 of a pixel, the normalized input of the encoder in red, green and blue."""

    @property
    def mark(self) -> str:
        """The text, such as `<image>`, that the chat template writes for one image."""

    @property
    def breaks_lines(self) -> bool:
        """Whether other tokens stand between lines of image rows (embeddings) in the prompt."""

    @property
    def most_rows(self) -> int:
        """The most image rows (embeddings) of a tile by these settings; 0 where only Tiling.most_rows bounds them."""

    @property
    def apart(self) -> bool:
        """Whether images are cut by `cut_among`, and not by `cut`, when a prompt has several. `cut_among` then makes
        one padded square of each image, with no further tiles."""

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image of this size is cut. low: True if the request asks for low detail, which means few tiles
        or rows."""

    def cut_among(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image is cut that is one of several in a prompt."""

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        """Returns the text that stands in the prompt for an image: placeholders and the tags around them. lines: for
        each tile, (number of lines, image rows in a line). An image row is an embedding."""

    def ahead(self, place: int) -> str:
        """Returns the text that stands in the prompt before the text of an image, such as its number. place: the number
        of images before it in the prompt."""

    def canvases(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> Sequence[Canvas | None]:
        """Returns the position of each tile on the canvas, the plane of the whole image; None for each tile in families
        without a canvas. lines: see `text`."""


class Colors(Struct, frozen=True):
    """How pixels are resized and normalized: the value of a byte is (byte * factor - mean) / std. word: the number of
    Pillow's resizing filter. resizes: whether images are resized at all."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: float
    word: int
    resizes: bool

    @property
    def table(self) -> tuple[tuple[float, float, float], ...]:
        """The normalized value of each byte in red, green and blue."""
        pairs = tuple(zip(self.mean, self.std, strict=True))
        rows = ([(byte * self.factor - mean) / std for mean, std in pairs] for byte in range(256))
        return tuple((red, green, blue) for red, green, blue in rows)


class OfColors:
    """The base of all families' processors, with the methods that most families share. Satisfies Processor together
    with each subclass. family: the family's name in the key of each tile. colors: how bytes of pixels are normalized.
    """

    __slots__ = ()
    family: ClassVar[str]
    colors: Colors

    @property
    def settings(self) -> str:
        return f"{self.family} {self!r}"

    @property
    def apart(self) -> bool:
        return False

    def cut_among(self, width: int, height: int, *, low: bool = False) -> Cut:
        raise NotImplementedError(self.family)

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        return self.colors.table

    @property
    def most_rows(self) -> int:
        return 0

    def ahead(self, place: int) -> str:
        return ""

    def canvases(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> Sequence[Canvas | None]:
        return (None,) * len(lines)


def too_narrow() -> InvalidRequest:
    """Returns the error for an image that is so narrow that one side would become 0 or the other one too long."""
    return InvalidRequest("The image is too narrow.", param="image", fix="Send an image whose longer side is shorter.")


def require_tower(fields: Fields, names: Sequence[str], patching: Patching) -> None:
    """Raises CorruptModel where a settings file and the model's encoder differ in the patch size, or in how many
    patches become one image row (an embedding). names: the file's fields for both numbers, or for the patch size alone.
    """
    for name, own in zip(names, (patching.patch, patching.merge), strict=False):
        if fields.has(name) and fields.integer(name, 1, 4096) != own:
            raise fields.wrong(name, f"The tower has {own}.")


def require_side(fields: Fields, size: Fields, names: Sequence[str], side: int, usual: int) -> None:
    """Raises CorruptModel where a file asks for tiles with another side than the encoder's. size: the group that has
    the fields `names`. usual: the side, in pixels, where a field is absent."""
    if any(size.integer(name, 1, 1 << 16, default=usual) != side for name in names):
        raise fields.wrong("size", f"The tower reads tiles of {side} pixels a side.")


def read_resizing(
    fields: Fields, usual: tuple[tuple[float, ...], tuple[float, ...]], word: int, why: str
) -> Colors:
    """Reads how pixels are resized and normalized (see read_colors). Also raises CorruptModel where the file sets
    do_resize to false. why: the reason that this error gives."""
    colors = read_colors(fields, usual, word)
    if not colors.resizes:
        raise fields.wrong("do_resize", why)
    return colors


ONE_SIZE, MULTIPLES = "All tiles have one size.", "Sides of a tile are multiples of an image row."


def read_colors(fields: Fields, usual: tuple[tuple[float, ...], tuple[float, ...]], word: int) -> Colors:
    """Reads how pixels are normalized and images are resized. usual: mean and standard deviation where the file has
    none. word: the number of Pillow's resizing filter where the file names none. Raises CorruptModel."""
    mean, std = (
        fields.numbers(name, 3, -1e6, 1e6) if fields.has(name) else silent
        for name, silent in zip(("image_mean", "image_std"), usual, strict=True)
    )
    if not fields.boolean("do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    if 0.0 in std:
        raise fields.wrong("image_std", "Pixels are divided by it.")
    scaled = fields.boolean("do_rescale", True)
    return Colors(
        mean,
        std,
        fields.number("rescale_factor", 0.0, 1e6, default=1 / 255) if scaled else 1.0,
        fields.integer("resample", 0, MOST_FILTER, default=word),
        fields.boolean("do_resize", True),
    )
