"""Sight: how an encoder divides images, and what the language model needs to know about their rows."""

from __future__ import annotations

import enum

from msgspec import Struct

from twostroke.images.processor import Tiling
from twostroke.ops.program.values import Rope
from twostroke.types.images import Patching, RowFold, SpanLayers


class Between(enum.Enum):
    """How the rows of a learned grid become rows of a grid of another size. CORNERS: bilinear, where corners fall on
    corners. BILINEAR, BICUBIC: places are the middles of squares. SMOOTH: BILINEAR over all places that a square of a
    smaller grid covers. GRID: the first lines and columns as they are. AXES: the tensor has two tables; a place is the
    sum of a row of the first by its column and one of the second by its line. PAIRS: the tables of AXES, with the two
    rows of a number next to each other. NEAREST: the row of the largest place that does not lie after a patch's own
    place."""

    CORNERS = enum.auto()
    BILINEAR = enum.auto()
    BICUBIC = enum.auto()
    SMOOTH = enum.auto()
    GRID = enum.auto()
    AXES = enum.auto()
    PAIRS = enum.auto()
    NEAREST = enum.auto()

    @property
    def taps(self) -> int:
        """How many learned places a place is made of. For SMOOTH, this is the number where the grid does not become
        smaller."""
        taps = {Between.GRID: 1, Between.AXES: 2, Between.PAIRS: 2, Between.BICUBIC: 16, Between.SMOOTH: 9}
        return taps.get(self, 4)


class LearnedPlaces(Struct, frozen=True):
    """A tensor with a row for each place of a square grid, which is fitted to each tile. side: the number of places
    along one side.

    first: the tensor of a row that is no patch. The place of this row is the first row of the table, or its last row
    where `first_is_last`, and the row itself stands after the patches. bias: the tensor that is added to the places of
    patches, because the row without pixels has no bias.
    """

    tensor: str
    side: int
    between: Between
    first: str = ""
    bias: str = ""
    first_is_last: bool = False

    @property
    def rows(self) -> int:
        """The number of rows of the tensor."""
        return 2 * self.side if self.between in (Between.AXES, Between.PAIRS) else self.side**2 + bool(self.first)

    @property
    def tensors(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(name for name in (self.tensor, self.first, self.bias) if name)


class Windows(Struct, frozen=True):
    """Layers whose patches see only the patches of a square window. side: the number of image rows along one side of a
    window. whole: the layers that see the whole tile."""

    side: int
    whole: tuple[int, ...]

    def most(self, rows: int) -> int:
        """Returns an upper bound for the number of windows of a tile with `rows` image rows, whatever the shape of the
        tile."""
        return rows // self.side**2 + (rows + 1) // self.side + 3


TIME, HEIGHT, WIDTH = range(3)


class TextTurns(Struct, frozen=True):
    """Which of time, height and width rotates each pair of the language model's heads. sections: the number of pairs
    that each axis rotates. interleaved: whether the pairs of the three axes alternate, or stand one axis after the
    other."""

    sections: tuple[int, int, int]
    interleaved: bool

    def fits(self, pairs: int) -> bool:
        """True where the sections fit a head with `pairs` pairs."""
        return self.interleaved or sum(self.sections) == pairs

    def axes(self, pairs: int) -> tuple[int, ...]:
        """Returns the axis of each pair of a head that the sections fit."""
        if not self.interleaved:
            return tuple(axis for axis, section in enumerate(self.sections) for _ in range(section))
        axes = [TIME] * pairs
        for axis in (HEIGHT, WIDTH):
            for pair in range(axis, min(3 * self.sections[axis], pairs), 3):
                axes[pair] = axis
        return tuple(axes)


class Sight(Struct, frozen=True, kw_only=True):
    """family: the family of the processor and of the marks in prompts. placeholder: the token id that stands where
    image rows go.

    side: the side of all tiles in pixels; 0 where a tile has the size that its image asks for. frames: how often a
    patch repeats its pixels. turn: the rotation of the tower's heads by line and column of a patch. turned_from: the
    number of the first line and of the first column; rows that are no patches have the number 0. text_turns: how the
    places of image rows turn the language model's heads. scaled: whether the factor of the embedding multiplies image
    rows too. added: layers of the language model after which further image rows are added. spans: layers in which the
    rows of an image see each other. colors_last: the colours of a pixel are neighbours in a patch. filler: the token id
    of image rows wherever the language model reads ids, except in the embedding; None for the id in the prompt.
    newline: the tensor of the row that ends lines of a sheet. grids, most_tiles, apart: see Tiling. fold: the place in
    the tower at which patches become fewer rows. marks: the token ids that belong to the image before them; only for
    models whose tiles have places on a canvas.
    """

    family: str
    placeholder: int
    patching: Patching
    side: int = 0
    frames: int = 1
    turn: Rope | None = None
    turned_from: int = 0
    learned: LearnedPlaces | None = None
    windows: Windows | None = None
    text_turns: TextTurns | None = None
    scaled: bool = True
    added: tuple[int, ...] = ()
    spans: SpanLayers = SpanLayers.NONE
    colors_last: bool = False
    filler: int | None = None
    newline: str = ""
    grids: tuple[tuple[int, int], ...] = ()
    most_tiles: int = 0
    apart: bool = False
    fold: RowFold | None = None
    marks: tuple[int, ...] = ()

    @property
    def tensors(self) -> frozenset[str]:
        """The names of the tensors that the host reads."""
        return (self.learned.tensors if self.learned else frozenset()) | {name for name in (self.newline,) if name}

    def tiling(self, asked: int) -> Tiling:
        """Returns the numbers that a processor needs to divide images. asked: see most_rows."""
        rows = self.most_rows(asked)
        return Tiling(self.patching, self.side, rows, self.grids, self.most_tiles, self.apart, bool(self.marks))

    def most_rows(self, asked: int) -> int:
        """Returns the most image rows of a tile. asked: the limit where an image decides the size of its tile."""
        if not self.side:
            return asked
        lines, columns = self.patching.lines(self.side, self.side)
        return lines * columns

    @property
    def rest(self) -> int:
        """The number of rows of a tile that are no patches."""
        return int(self.learned is not None and bool(self.learned.first))

    def most_windows(self, asked: int) -> int:
        """Returns the largest number of sequences into which a layer divides the rows of a tile: one for each window,
        or for each group of a fold. asked: see most_rows."""
        if self.fold is not None:
            return self.most_patches(asked) // self.fold.group
        return self.windows.most(self.most_rows(asked)) if self.windows else 1

    def most_patches(self, asked: int) -> int:
        """Returns the most patches and other rows of a tile. asked: see most_rows."""
        if self.side:
            return (self.side // self.patching.patch) ** 2 + self.rest
        return asked * self.patching.merge**2 + self.rest
