"""Sight: how a vision encoder divides images into tiles and patches, and what the language model needs to know about
the rows that an image becomes."""

from __future__ import annotations

import enum

from msgspec import Struct

from twostroke.images.processor import Tiling
from twostroke.ops.program.values import Rope
from twostroke.types.images import Patching, RowFold, SpanLayers


class Between(enum.Enum):
    """How the learned position embeddings of a square grid are fitted to a grid of another size.

    - CORNERS: bilinear; the corners of both grids coincide.
    - BILINEAR, BICUBIC: interpolated between the middles of the cells (align_corners=False).
    - SMOOTH: BILINEAR with antialiasing where the grid becomes smaller.
    - GRID: the first lines and columns of the learned grid, unchanged.
    - AXES: the tensor has a table for columns and then one for lines. A patch gets the sum of one row of each.
    - PAIRS: like AXES, but row 2 i is the row of column i and row 2 i + 1 that of line i.
    - NEAREST: the row of the last cell that begins at or before the patch.
    """

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
        """How many rows of the learned table are added up for the position embedding of one patch. For SMOOTH this is 9
        if the tile's grid is not smaller than the learned grid; smaller grids need more rows."""
        taps = {Between.GRID: 1, Between.AXES: 2, Between.PAIRS: 2, Between.BICUBIC: 16, Between.SMOOTH: 9}
        return taps.get(self, 4)


class LearnedPlaces(Struct, frozen=True):
    """The tensor of a tower's learned position embeddings, for a square grid of patches; it is fitted to the grid of
    each tile.

    side: the number of patches along one side of the square grid. first: the tensor of the class token, which stands
    after the patches. Its position embedding is the table's first row, or the last one where `first_is_last`. bias: the
    bias of the product of the pixels. It is added to the position embeddings of patches, because the class token gets
    no bias.
    """

    tensor: str
    side: int
    between: Between
    first: str = ""
    bias: str = ""
    first_is_last: bool = False

    @property
    def rows(self) -> int:
        """The number of rows of the stored tensor of position embeddings."""
        return 2 * self.side if self.between in (Between.AXES, Between.PAIRS) else self.side**2 + bool(self.first)

    @property
    def tensors(self) -> frozenset[str]:
        """The names of all checkpoint tensors that the position embeddings read."""
        return frozenset(name for name in (self.tensor, self.first, self.bias) if name)


class Windows(Struct, frozen=True):
    """Window attention in a tower: in most layers, patches see only the patches of their square window. side: the
    number of image rows along one side of a window. whole: the layers in which patches see the whole tile."""

    side: int
    whole: tuple[int, ...]

    def most(self, rows: int) -> int:
        """Returns an upper bound for the number of windows of a tile with `rows` image rows, whatever the shape of the
        tile."""
        return rows // self.side**2 + (rows + 1) // self.side + 3


TIME, HEIGHT, WIDTH = range(3)


class TextTurns(Struct, frozen=True):
    """M-RoPE: which of time, height and width rotates each rotary pair of the language model's heads. sections: the
    number of pairs that time, height and width rotate. interleaved: whether the pairs of the three axes alternate, or
    all pairs of one axis stand before those of the next."""

    sections: tuple[int, int, int]
    interleaved: bool

    def fits(self, pairs: int) -> bool:
        """Whether `sections` can be applied to heads with `pairs` rotary pairs. Interleaved sections always can, others
        only with a sum of `pairs`."""
        return self.interleaved or sum(self.sections) == pairs

    def axes(self, pairs: int) -> tuple[int, ...]:
        """Returns which axis (TIME, HEIGHT or WIDTH) rotates each of a head's `pairs` rotary pairs. `fits(pairs)` must
        be true."""
        if not self.interleaved:
            return tuple(axis for axis, section in enumerate(self.sections) for _ in range(section))
        axes = [TIME] * pairs
        for axis in (HEIGHT, WIDTH):
            for pair in range(axis, min(3 * self.sections[axis], pairs), 3):
                axes[pair] = axis
        return tuple(axes)


class Sight(Struct, frozen=True, kw_only=True):
    """What a vision encoder makes of an image, and how its rows enter the language model. family: the family of the
    processor and of the tokens around images in prompts. placeholder: the token id that stands where image rows go.

    The encoder (tower). side: the side of all tiles in pixels; 0 where a tile has the size that its image asks for.
    frames: how many times the pixels of an image are repeated in a patch, for encoders made for video. turn: the
    rotation of the tower's heads by line and column of a patch. turned_from: the number that rotations give the first
    line and column; 1 where the class token has the number 0. colors_last: whether a patch has the three colours of a
    pixel next to each other. fold: where in the tower a square of patches becomes one row.

    The tiles. newline: the tensor of the row that ends each line of a grid of tiles. grids, most_tiles, apart: see
    Tiling.

    The language model. text_turns: how line and column of an image row rotate its heads. scaled: whether the factor on
    embeddings multiplies image rows too. added: the layers after which further image rows are added. spans: the layers
    in which the rows of an image see each other in both directions. filler: the token id of image rows wherever token
    ids are read, except in the embedding; None for the id in the prompt. marks: the ids of tokens, such as the end of
    an image, that belong to the image which they follow, so that they do not move later positions. Only models that
    place images on a canvas have marks.
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
        """The names of the tensors that no op reads: position embeddings, class token and newline row, from which the
        host makes inputs of the tower."""
        return (self.learned.tensors if self.learned else frozenset()) | {name for name in (self.newline,) if name}

    def tiling(self, asked: int) -> Tiling:
        """Returns what a processor needs to know to divide images into tiles. asked: the most image rows of a tile
        whose size depends on the image."""
        rows = self.most_rows(asked)
        return Tiling(self.patching, self.side, rows, self.grids, self.most_tiles, self.apart, bool(self.marks))

    def most_rows(self, asked: int) -> int:
        """Returns the most image rows that a tile can become. asked: the limit for tiles whose size depends on the
        image."""
        if not self.side:
            return asked
        lines, columns = self.patching.lines(self.side, self.side)
        return lines * columns

    @property
    def rest(self) -> int:
        """The number of class tokens that the tower adds to the patches of a tile, 0 or 1."""
        return int(self.learned is not None and bool(self.learned.first))

    def most_windows(self, asked: int) -> int:
        """Returns the largest number of parts of a tile in which a layer attends separately: windows, or the groups of
        patches that `fold` joins to one row. It is 1 without such parts. asked: the most image rows of a tile whose
        size depends on the image."""
        if self.fold is not None:
            return self.most_patches(asked) // self.fold.group
        return self.windows.most(self.most_rows(asked)) if self.windows else 1

    def most_patches(self, asked: int) -> int:
        """Returns the largest number of rows of a tile in the tower: its patches and the class token. asked: the most
        image rows of a tile whose size depends on the image."""
        if self.side:
            return (self.side // self.patching.patch) ** 2 + self.rest
        return asked * self.patching.merge**2 + self.rest
