"""How a tile becomes rows of pixels: the order of its patches, their windows, and the learned position embeddings that
are added to them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.models.common.sight import Between, Sight
from twostroke.ops.operands import F32Array, I32Array
from twostroke.types.images import ImageTile

ALL = slice(None)


class PatchOrder(Struct, frozen=True, eq=False):
    """The order of a tile's patches in a step of the encoder. lines, columns: (patches,), the line and the column of
    each patch in its tile, in this order. back: for each image row, the index of the group of patches that becomes this
    row. windows: the number of patches in each attention window, in order. Where the encoder folds rows, these are
    instead the groups that become one row each. Without either, it is empty. rest: the number of class tokens, 0 or 1;
    a class token's row comes after the patches."""

    lines: I32Array
    columns: I32Array
    back: I32Array
    windows: tuple[int, ...]
    rest: int = 0

    @property
    def rows(self) -> int:
        """The number of rows of the encoder's step: its patches and its class token."""
        return len(self.lines) + self.rest

    def rest_in(self, rows: slice) -> int:
        """Returns how many of these rows of the step are class tokens: 0 or 1."""
        return len(range(self.rows)[rows]) - len(range(len(self.lines))[rows])


class PatchLayout:
    """Makes, from a tile, the rows of pixels of its patches, their rotary positions and their position embeddings.

    values: (256, 3), the number for each byte of red, green and blue. table: the learned position embeddings
    (positions, width), if the model interpolates them to the size of each tile; the embedding of a class token comes
    first. newline: the image row that is put at the end of each line.
    """

    def __init__(
        self, sight: Sight, values: F32Array, table: F32Array | None = None, newline: F32Array | None = None
    ) -> None:
        self._sight, self._values, self.newline = sight, values, newline
        self._first = None if table is None else table[: sight.rest]
        self._table = None if table is None else table[sight.rest :]
        self.order = lru_cache(maxsize=64)(self._order)

    def grid(self, tile: ImageTile) -> tuple[int, int]:
        """Returns the height and the width of a tile in patches."""
        merge = self._sight.patching.merge
        return tile.lines * merge, tile.columns * merge

    def patches(self, tile: ImageTile, rows: slice = ALL) -> F32Array:
        """Returns the pixels of patches, (rows, colours * frames * side * side). A row is red of all pixels of a patch,
        then green, then blue; where the model has `colors_last`, the three colours of each pixel are neighbours. A
        class token's row is zeros. rows: the rows of the step that are returned."""
        side, (height, width) = self._sight.patching.patch, self.grid(tile)
        pixels: NDArray[np.uint8] = np.frombuffer(tile.pixels, np.uint8).reshape(tile.height, tile.width, 3)
        cut = pixels[: height * side, : width * side].reshape(height, side, width, side, 3)
        order = self.order(tile.lines, tile.columns)
        own_lines, own_columns, rest = order.lines[rows], order.columns[rows], order.rest_in(rows)
        bytes_of = cut.transpose(0, 2, 4, 1, 3)[own_lines, own_columns].reshape(len(own_lines), 3, 1, side * side)
        frames = self._sight.frames
        found = np.empty((len(bytes_of), 3, frames, side * side), np.float32)
        for channel in range(3):
            found[:, channel] = self._values[:, channel][bytes_of[:, channel]]
        if self._sight.colors_last:
            found = found.transpose(0, 2, 3, 1)
        made = np.ascontiguousarray(found).reshape(len(found), 3 * frames * side * side)
        return np.pad(made, ((0, rest), (0, 0))) if rest else made

    def _order(self, lines: int, columns: int) -> PatchOrder:
        """Returns the order of a tile's patches. The patches of one image row are neighbours. Where there are windows,
        the image rows of a window are neighbours too."""
        merge, windows = self._sight.patching.merge, self._sight.windows
        numbers = np.arange(lines * columns, dtype=np.int32).reshape(lines, columns)
        groups, lengths = numbers.reshape(-1), []
        if windows:
            cut = [
                numbers[line : line + windows.side, column : column + windows.side].reshape(-1)
                for line in range(0, lines, windows.side)
                for column in range(0, columns, windows.side)
            ]
            groups, lengths = np.concatenate(cut), [len(each) * merge**2 for each in cut]
        own_line, own_column = np.divmod(groups, np.int32(columns))
        inner_line, inner_column = self._inner()
        line = (own_line[:, None] * merge + inner_line).reshape(-1).astype(np.int32)
        column = (own_column[:, None] * merge + inner_column).reshape(-1).astype(np.int32)
        if self._sight.fold:
            lengths = [self._sight.fold.group] * (len(line) // self._sight.fold.group)
        return PatchOrder(line, column, np.argsort(groups).astype(np.int32), tuple(lengths), self._sight.rest)

    def _inner(self) -> tuple[I32Array, I32Array]:
        """A group of patches becomes one image row. Returns the line and the column of each patch inside its group, in
        the order in which the encoder reads them. Where the encoder first folds squares of patches to one row each, the
        patches of a square are neighbours."""
        merge, side = self._sight.patching.merge, self._sight.fold.side if self._sight.fold else 1
        square, own = np.divmod(np.arange(merge**2, dtype=np.int32), np.int32(side**2))
        line, column = np.divmod(square, np.int32(merge // side))
        return line * side + own // side, column * side + own % side

    def turns(self, tile: ImageTile, rows: slice) -> I32Array:
        """Returns the line and the column (2, rows) that are the rotary positions of a tile's rows. rows: the rows of
        the step that are returned."""
        order = self.order(tile.lines, tile.columns)
        made = np.stack([order.lines[rows], order.columns[rows]]) + np.int32(self._sight.turned_from)
        return np.pad(made, ((0, 0), (0, order.rest_in(rows))))

    def places(self, tile: ImageTile, rows: slice = ALL) -> F32Array:
        """Returns the position embeddings (rows, width) of a tile's rows. rows: the rows of the step that are returned.
        Raises ValueError for a model without learned position embeddings."""
        learned, order = self._sight.learned, self.order(tile.lines, tile.columns)
        if learned is None or self._table is None or self._first is None:
            raise ValueError("no table of places")
        own_lines, own_columns = order.lines[rows], order.columns[rows]
        if learned.between is Between.AXES:
            added: F32Array = self._table[own_columns] + self._table[learned.side + own_lines]
            return added
        if learned.between is Between.PAIRS:
            paired: F32Array = self._table[2 * own_columns] + self._table[2 * own_lines + 1]
            return paired
        height, width = self.grid(tile)
        lines, columns = (taps(count, learned.side, learned.between) for count in (height, width))
        made = np.zeros((len(own_lines), self._table.shape[1]), np.float32)
        for line, line_share in zip(*lines, strict=True):
            for column, column_share in zip(*columns, strict=True):
                share = line_share[own_lines] * column_share[own_columns]
                made += self._table[line[own_lines] * learned.side + column[own_columns]] * share[:, None]
        return np.concatenate([made, self._first]) if order.rest_in(rows) else made


def taps(count: int, side: int, between: Between) -> tuple[list[I32Array], list[F32Array]]:
    """Returns how the position embeddings of `count` patches along one side of a tile are interpolated from `side`
    learned ones. Each array of the first list has, for each patch, the index of one learned embedding. The arrays of
    the second list have the weights by which these embeddings are multiplied."""
    if between is Between.SMOOTH:
        return _smooth(count, side)
    index = np.arange(count, dtype=np.float32)
    if between is Between.GRID:
        return [np.minimum(index.astype(np.int32), side - 1)], [np.ones(count, np.float32)]
    if between is Between.NEAREST:
        return [np.arange(count, dtype=np.int32) * np.int32(side) // np.int32(count)], [np.ones(count, np.float32)]
    if between is Between.CORNERS:
        source = index * np.float32(side - 1) / np.float32(max(count - 1, 1))
    else:
        source = (index + np.float32(0.5)) * np.float32(side) / np.float32(count) - np.float32(0.5)
    floor = np.floor(source)
    offsets = range(-1, 3) if between is Between.BICUBIC else range(2)
    places, shares = [], []
    for offset in offsets:
        distance = np.abs(source - floor - np.float32(offset))
        places.append(np.clip(floor.astype(np.int32) + offset, 0, side - 1).astype(np.int32))
        shares.append(_bicubic(distance) if between is Between.BICUBIC else np.maximum(1 - distance, 0))
    return places, [each.astype(np.float32) for each in shares]


def _smooth(count: int, side: int) -> tuple[list[I32Array], list[F32Array]]:
    """Returns the indices of the learned embeddings that each patch reads, and their weights, which add up to 1. The
    weights form a triangle, which is as wide as a patch of the tile, but at least as wide as a cell of the learned
    grid."""
    scale = side / count
    support = max(scale, 1.0)
    middle = (np.arange(count) + 0.5) * scale
    first = np.maximum((middle - support + 0.5).astype(np.int64), 0)
    end = np.minimum((middle + support + 0.5).astype(np.int64), side)
    places = first[:, None] + np.arange(int((end - first).max()))
    shares = np.maximum(1 - np.abs((places - middle[:, None] + 0.5) / support), 0) * (places < end[:, None])
    shares /= shares.sum(axis=1, keepdims=True)
    held = np.minimum(places, side - 1).astype(np.int32)
    return list(held.T.copy()), list(shares.astype(np.float32).T.copy())


def _bicubic(distance: F32Array) -> F32Array:
    """Returns the weights of bicubic interpolation at these distances: the kernel of Keys (1981) with a = -0.75."""
    a = np.float32(-0.75)
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    found: F32Array = np.where(distance <= 1, near, far).astype(np.float32)
    return found
