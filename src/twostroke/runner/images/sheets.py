"""Large images that are divided into square tiles (a sheet). Each square is encoded alone; then the rows of all squares
are joined to the rows of the whole image, line by line."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from twostroke.ops.operands import F32Array, I32Array
from twostroke.types.images import ImageTile, Sheet


def squares_of(tile: ImageTile) -> list[ImageTile]:
    """Returns the tiles that are encoded alone: the tile itself, or the squares of a tile that is a grid of squares, in
    order."""
    sheet = tile.sheet
    if sheet is None:
        return [tile]
    wide, high = tile.width // sheet.across, tile.height // sheet.down
    pixels = np.frombuffer(tile.pixels, np.uint8).reshape(tile.height, tile.width, 3)
    return [
        structs.replace(
            tile,
            **{"lines": sheet.side, "columns": sheet.side, "width": wide, "height": high, "sheet": None},
            pixels=pixels[line * high : (line + 1) * high, column * wide : (column + 1) * wide].tobytes(),
        )
        for line in range(sheet.down)
        for column in range(sheet.across)
    ]


def read_sheet(sheet: Sheet, rows: F32Array, newline: F32Array, first: int, end: int) -> F32Array:
    """Returns image rows [first, end) of a picture that was encoded as a grid of squares. rows: the squares' image rows
    (squares * side * side, width). newline: the row that is put after each line of image rows, or once after all lines.

    If the picture is to have another number of lines or columns than the squares give, the rows are interpolated
    bilinearly in float32. The centres of old and new cells are aligned, as with align_corners=False in PyTorch.
    """
    numbers = np.arange(first, end)
    if sheet.ends_lines:
        line, column = np.divmod(numbers, sheet.width + 1)
        is_newline = column == sheet.width
    else:
        line, column = np.divmod(np.minimum(numbers, sheet.width * sheet.height - 1), sheet.width)
        is_newline = numbers == sheet.width * sheet.height
    column = np.minimum(column, sheet.width - 1)
    if (sheet.width, sheet.height) == (sheet.columns, sheet.lines):
        made: F32Array = rows[_places(sheet, line, column)]
    else:
        (top, bottom, low), (left, right, far) = (
            _between(line, sheet.lines, sheet.height),
            _between(column, sheet.columns, sheet.width),
        )
        upper, lower = (
            rows[_places(sheet, at, left)] * (np.float32(1) - far) + rows[_places(sheet, at, right)] * far
            for at in (top, bottom)
        )
        made = (upper * (np.float32(1) - low) + lower * low).astype(np.float32)
    made[is_newline] = newline
    return made


def _places(sheet: Sheet, line: I32Array, column: I32Array) -> I32Array:
    """Returns where the rows for these lines and columns of the whole picture are among the rows of its squares, which
    are stored one square after the other."""
    (down, own_line), (across, own_column) = (
        np.divmod(at, sheet.side) for at in (line + sheet.top, column + sheet.left)
    )
    found: I32Array = ((down * sheet.across + across) * sheet.side + own_line) * sheet.side + own_column
    return found


def _between(at: I32Array, count: int, fitted: int) -> tuple[I32Array, I32Array, F32Array]:
    """Returns, along one side, the two old indices between which each new index lies in bilinear interpolation, and the
    weight of the second one, (indices, 1). at: the new indices. count, fitted: the old and the new length."""
    scale = np.float32(count) / np.float32(fitted)
    source = np.maximum((at.astype(np.float32) + np.float32(0.5)) * scale - np.float32(0.5), np.float32(0))
    first = source.astype(np.int32)
    share = (source - first.astype(np.float32)).astype(np.float32)
    return first, np.minimum(first + 1, count - 1), share[:, None]
