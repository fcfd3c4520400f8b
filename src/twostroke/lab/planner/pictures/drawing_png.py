"""A drawing as a PNG file, at twice its size: strokes and dots with soft edges, words in a font of 5 x 7 dots."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from twostroke.lab.planner.pictures.drawing import Dot, Drawing, Stroke, Words
from twostroke.lab.planner.pictures.glyphs import GLYPH_COLUMNS, columns_of

SCALE = 2
DASH, DASH_PERIOD = 6.0, 10.0

Pixels = NDArray[np.float32]


def as_png(drawing: Drawing) -> bytes:
    """Returns the file's bytes; 8 bits a channel, RGB."""
    pixels = np.full((drawing.height * SCALE, drawing.width * SCALE, 3), 255, np.float32)
    for shape in drawing.shapes:
        if isinstance(shape, Words):
            _words(pixels, shape)
        elif isinstance(shape, Dot):
            _dot(pixels, shape)
        else:
            _stroke(pixels, shape)
    return _encoded(pixels)


def _dot(pixels: Pixels, dot: Dot) -> None:
    x, y = dot.x * SCALE, dot.y * SCALE
    _capsule(pixels, (x, y), (x, y), dot.radius * SCALE, dot.colour)


def _stroke(pixels: Pixels, stroke: Stroke) -> None:
    for (x0, y0), (x1, y1) in zip(stroke.points, stroke.points[1:], strict=False):
        begin, end = np.array([x0, y0]) * SCALE, np.array([x1, y1]) * SCALE
        length = float(np.hypot(*(end - begin)))
        period = DASH_PERIOD * SCALE if stroke.dashed else max(length, 1.0)
        ink = DASH * SCALE if stroke.dashed else period
        for at in np.arange(0.0, max(length, 1e-6), period):
            first, last = at / max(length, 1e-6), min(1.0, (at + ink) / max(length, 1e-6))
            ends = [begin + share * (end - begin) for share in (first, last)]
            _capsule(pixels, tuple(ends[0]), tuple(ends[1]), stroke.width * SCALE / 2, stroke.colour)


def _capsule(pixels: Pixels, begin: tuple[float, ...], end: tuple[float, ...], radius: float, colour: str) -> None:
    """Draws all points that are no further than `radius` from the line between two points."""
    (x0, y0), (x1, y1) = begin, end
    height, width = pixels.shape[:2]
    left, right = max(0, int(min(x0, x1) - radius - 1)), min(width, int(max(x0, x1) + radius + 2))
    top, bottom = max(0, int(min(y0, y1) - radius - 1)), min(height, int(max(y0, y1) + radius + 2))
    if left >= right or top >= bottom:
        return
    x, y = np.arange(left, right)[None, :] + 0.5 - x0, np.arange(top, bottom)[:, None] + 0.5 - y0
    dx, dy = x1 - x0, y1 - y0
    share = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-9), 0, 1)
    cover = np.clip(radius + 0.5 - np.hypot(x - share * dx, y - share * dy), 0, 1)
    _blend(pixels[top:bottom, left:right], cover.astype(np.float32), colour)


def _words(pixels: Pixels, words: Words) -> None:
    size = max(1, round(words.pixels * SCALE / 10))
    columns = [column for letter in words.text for column in columns_of(letter)]
    bits = (np.array(columns, np.uint8)[None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    ink = np.kron(bits, np.ones((size, size), np.uint8)).astype(np.float32)
    if words.bold:
        ink[:, 1:] = np.maximum(ink[:, 1:], ink[:, :-1])
    share = {"start": 0.0, "middle": 0.5, "end": 1.0}[words.anchor]
    left = round(words.x * SCALE - share * ink.shape[1])
    top = round(words.y * SCALE) - (GLYPH_COLUMNS + 2) * size
    rows, cells = slice(max(0, -top), pixels.shape[0] - top), slice(max(0, -left), pixels.shape[1] - left)
    inside = ink[rows, cells]
    top, left = max(0, top), max(0, left)
    _blend(pixels[top : top + inside.shape[0], left : left + inside.shape[1]], inside, words.colour)


def _blend(area: Pixels, cover: NDArray[np.float32], colour: str) -> None:
    ink = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], np.float32)
    area += cover[:, :, None] * (ink - area)


def _encoded(pixels: Pixels) -> bytes:
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter number, 0 (none)
    rows[:, 1:] = np.rint(pixels).astype(np.uint8).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
