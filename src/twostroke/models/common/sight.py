"""Sight: how an encoder divides images, and what the language model needs to know of their rows."""

from __future__ import annotations

import enum

from msgspec import Struct

from twostroke.images.processor import Tiling
from twostroke.ops.program.values import Rope
from twostroke.types.images import Patching, SpanLayers


class Between(enum.Enum):
    """How rows of a learned grid become those of a grid of another size. CORNERS: bilinear, corners on corners.
    BILINEAR, BICUBIC: places are the middles of squares. SMOOTH: BILINEAR over all places that a square of a
    smaller grid covers. GRID: the first lines and columns as they are. AXES: the tensor has two tables; a place is the
    sum of a row of the first by its column and one of the second by its line. PAIRS: the tables of AXES, with
    the two rows of a number next to each other."""

    CORNERS = enum.auto()
    BILINEAR = enum.auto()
    BICUBIC = enum.auto()
    SMOOTH = enum.auto()
    GRID = enum.auto()
    AXES = enum.auto()
    PAIRS = enum.auto()


class LearnedPlaces(Struct, frozen=True):
    """A tensor with a row for each place of a square grid, which is fitted to each tile. side: places of one side.

    first: the tensor of a row that is no patch, whose place is the first row of the table. It stands after the patches.
    bias: the tensor that is added to the places of patches, because the row without pixels has none.
    """

    tensor: str
    side: int
    between: Between
    first: str = ""
    bias: str = ""

    @property
    def rows(self) -> int:
        """Rows of the tensor."""
        return 2 * self.side if self.between in (Between.AXES, Between.PAIRS) else self.side**2 + bool(self.first)

    @property
    def tensors(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(name for name in (self.tensor, self.first, self.bias) if name)


class Windows(Struct, frozen=True):
    """Layers whose patches see those of a square window alone. side: image rows of one side of a window. whole: the
    layers that see the whole tile."""

    side: int
    whole: tuple[int, ...]

    def most(self, rows: int) -> int:
        """The most windows of a tile of this many image rows: those of a tile of one line, or of a square."""
        return rows // self.side**2 + (rows + 1) // self.side + 3


TIME, HEIGHT, WIDTH = range(3)


class TextTurns(Struct, frozen=True):
    """Which of time, height and width turns each pair of the language model's heads. sections: how many pairs each of
    them turns. interleaved: whether the three alternate, or stand in a row."""

    sections: tuple[int, int, int]
    interleaved: bool

    def fits(self, pairs: int) -> bool:
        """Whether the sections are those of a head with so many pairs."""
        return self.interleaved or sum(self.sections) == pairs

    def axes(self, pairs: int) -> tuple[int, ...]:
        """The axis of each pair of a head, which the sections fit."""
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
    patch repeats its pixels. turn: the rotation of the tower's heads by line and column of a patch. text_turns: where
    places of image rows turn the language model's heads. scaled: whether the factor of the embedding is that of image
    rows too. added: layers of the language model after which further image rows are added. spans: layers in which the
    rows of an image see each other. colors_last: the colours of a pixel are neighbours in a patch. filler: the token id
    that positions of image rows have for what the language model reads by ids, apart from the embedding; None for that
    of the prompt. newline: the tensor of the row that ends lines of a sheet. grids, most_tiles, apart: see Tiling.
    """

    family: str
    placeholder: int
    patching: Patching
    side: int = 0
    frames: int = 1
    turn: Rope | None = None
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

    @property
    def tensors(self) -> frozenset[str]:
        """The names of tensors that the host reads."""
        return (self.learned.tensors if self.learned else frozenset()) | {name for name in (self.newline,) if name}

    def tiling(self, asked: int) -> Tiling:
        """What a processor needs to know. asked: see most_rows."""
        rows = self.most_rows(asked)
        return Tiling(self.patching, self.side, rows, self.grids, self.most_tiles, self.apart)

    def most_rows(self, asked: int) -> int:
        """The most image rows of a tile. asked: the same where an image decides its size."""
        if not self.side:
            return asked
        lines, columns = self.patching.lines(self.side, self.side)
        return lines * columns

    @property
    def rest(self) -> int:
        """Rows of a tile that are no patches."""
        return int(self.learned is not None and bool(self.learned.first))

    def most_patches(self, asked: int) -> int:
        """The most patches and other rows of a tile; see most_rows."""
        if self.side:
            return (self.side // self.patching.patch) ** 2 + self.rest
        return asked * self.patching.merge**2 + self.rest
