"""Rotary positions of a prompt in time, height and width (M-RoPE). After an image, the time goes on by the larger of
its lines and columns. For a model that divides an image into slices, the lines and columns are those of the canvas: the
plane on which it places the image and its slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twostroke.ops.operands import I32Array
from twostroke.types.images import ImageSpan


def places_of(spans: Sequence[ImageSpan], start: int, end: int) -> I32Array:
    """Returns the time, height and width of positions [start, end), as (3, end - start). spans: all images of the
    prompt, in order.

    A text position has the same number three times. Rows of an image share the time at which it begins; their lines and
    columns are counted from this time on.
    """
    positions = np.arange(start, end, dtype=np.int32)
    made = np.repeat(positions[None], 3, axis=0)
    if spans and spans[0].canvas is not None:
        _place_on_canvases(_Window(made, start), spans)
        return made
    shift = 0
    for span in spans:
        if span.first >= end:
            break
        columns, begin = span.tile.columns, span.first - shift
        inside = slice(max(span.first - start, 0), max(span.end - start, 0))
        rows = positions[inside] - span.first
        made[0, inside] = begin
        made[1, inside] = begin + rows // columns
        made[2, inside] = begin + rows % columns
        length = max(span.tile.lines, columns)
        shift += span.end - span.first - length
        made[:, max(span.end - start, 0) :] = positions[max(span.end - start, 0) :] - shift
    return made


class _Window:
    """The rotary positions (3, rows) of positions from `start` on. Writes to positions outside the window are ignored.
    """

    def __init__(self, made: I32Array, start: int) -> None:
        self._made, self._start = made, start

    @property
    def end(self) -> int:
        """The position after the last position of the window."""
        return self._start + len(self._made[0])

    def put(self, first: int, end: int, origin: int, line: I32Array | int, column: I32Array | int) -> None:
        """Writes the rotary positions of positions [first, end): time `origin`, height `origin + line`, width `origin +
        column`. line, column: one number for all positions, or one for each."""
        begin, stop = max(first, self._start), min(end, self.end)
        if begin < stop:
            own, part = slice(begin - self._start, stop - self._start), slice(begin - first, stop - first)
            self._made[0, own] = origin
            for axis, given in ((1, line), (2, column)):
                self._made[axis, own] = origin + (given if isinstance(given, int) else given[part])

    def shift(self, first: int, shift: int) -> None:
        """Sets time, height and width of each position from `first` on to the position minus `shift`."""
        begin = max(first, self._start)
        if begin < self.end:
            self._made[:, begin - self._start :] = np.arange(begin - shift, self.end - shift, dtype=np.int32)


def _place_on_canvases(window: _Window, spans: Sequence[ImageSpan]) -> None:
    """Writes the rotary positions of images that are shown as a whole and in slices, and of the tokens around them. For
    each image, the slices lie side by side on one canvas, over which the whole image is stretched too. The tokens
    before and after a tile lie at its corners. The breaks between lines of slices lie at the right edge of the canvas,
    further tokens after the last tile where the canvas begins."""
    shift = origin = 0
    for place, span in enumerate(spans):
        canvas, tile = span.canvas, span.tile
        if canvas is None or span.first > window.end:
            break
        if canvas.is_whole:
            origin = span.first - 1 - shift
            before = -min(origin, 1)
            window.put(span.first - 1, span.first, origin, before, before)
            window.put(span.end, span.end + 1, origin, canvas.lines, canvas.columns)
        else:
            bottom, right = canvas.top + canvas.height - 1, canvas.left + canvas.width - 1
            window.put(span.first - 1, span.first, origin, canvas.top, canvas.left)
            window.put(span.end, span.end + 1, origin, bottom, right)
            if not canvas.ends:
                window.put(span.end + 1, spans[place + 1].first - 1, origin, bottom, canvas.columns)
        lines = canvas.top + _spread(tile.lines, canvas.height)
        columns = canvas.left + _spread(tile.columns, canvas.width)
        window.put(span.first, span.end, origin, np.repeat(lines, tile.columns), np.tile(columns, tile.lines))
        if canvas.ends:
            window.put(span.end + 1, canvas.ends, origin, 0, 0)
            shift = canvas.ends - (origin + max(canvas.lines, canvas.columns) + 1)
            window.shift(canvas.ends, shift)


def _spread(count: int, length: int) -> I32Array:
    """Returns `count` whole numbers that are spread evenly from 0 to length - 1. They are the floats of torch.linspace,
    rounded half to even."""
    step = np.float32(length - 1) / np.float32(max(count - 1, 1))
    index = np.arange(count, dtype=np.float32)
    upper = np.float32(length - 1) - step * (np.float32(count - 1) - index)
    found: I32Array = np.rint(np.where(index < count // 2, step * index, upper)).astype(np.int32)
    return found if count > 1 else np.zeros(count, np.int32)
