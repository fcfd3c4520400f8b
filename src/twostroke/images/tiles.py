"""Images that are cut into squares: the grid whose shape is nearest to an image's shape, and the squares of a grid."""

from __future__ import annotations

from twostroke.images.decoding.decoder import Step


def nearest_grid(width: int, height: int, side: int, least: int, most: int) -> tuple[int, int]:
    """Returns (columns, rows) of the grid of tiles whose shape is nearest to the image's. least, most: bounds of the
    number of tiles.

    Of equally near grids, the one with more tiles is returned, unless the image's area is at most half of that grid's.
    """
    grids = sorted(
        ((columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)),
        key=lambda grid: grid[0] * grid[1],
    )
    found, nearest = (1, 1), float("inf")
    for columns, rows in grids:
        if columns * rows < least:
            continue
        apart = abs(width / height - columns / rows)
        if apart < nearest or (apart == nearest and width * height > 0.5 * side**2 * columns * rows):
            found, nearest = (columns, rows), apart
    return found


def squares(columns: int, rows: int, side: int) -> list[Step]:
    """Returns the steps, for the child process, that cut a resized image into the squares of a grid, line by line.
    side: the side of a square in pixels."""
    return [("tile", column * side, row * side, side, side) for row in range(rows) for column in range(columns)]


def with_squares(columns: int, rows: int, side: int, word: int) -> list[Step]:
    """Returns the steps, for the child process, that stretch an image to a grid, cut it into squares, and undo the
    stretching. word: the number of Pillow's resizing filter."""
    return [("resize", columns * side, rows * side, word), *squares(columns, rows, side), ("again",)]
