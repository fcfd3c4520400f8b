"""The roofline as shapes, as SVG and as PNG."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.planner.test_plan import expected
from twostroke.lab.planner.pictures.drawing import Dot, Drawing, Stroke, Words
from twostroke.lab.planner.pictures.drawing_png import SCALE, as_png
from twostroke.lab.planner.pictures.drawing_svg import as_svg
from twostroke.lab.planner.pictures.glyphs import columns_of
from twostroke.lab.planner.pictures.roofline_plot import roofline


def pixels_of(png: bytes) -> NDArray[np.uint8]:
    """The pixels (height, width, 3), read from PNGs with one IDAT, 8 bits, RGB and no filters."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + length
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 2, 0, 0, 0] and b"IEND" in chunks
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_the_roofline_shows_roof_ridge_and_phases() -> None:
    drawing = roofline("a <model>", expected("h100-sxm", weights="int4", concurrency=8))
    words = [shape.text for shape in drawing.shapes if isinstance(shape, Words)]
    assert "a <model>" in words and "ridge 591" in words
    assert sum(text.startswith(("decode, 1 stream:", "decode, 8 streams:", "prefill:")) for text in words) == 3
    dots = [shape for shape in drawing.shapes if isinstance(shape, Dot)]
    assert len(dots) == 3 and all(0 < dot.x < drawing.width and 0 < dot.y < drawing.height for dot in dots)
    roof = next(shape for shape in drawing.shapes if isinstance(shape, Stroke) and shape.width == 2)
    assert roof.points[0][1] > roof.points[1][1] == roof.points[2][1]


def test_svg_is_xml_with_all_shapes() -> None:
    drawing = roofline("a <model> & more", expected("h100-sxm", weights="int4"))
    root = ElementTree.fromstring(as_svg(drawing))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "a <model> & more" in texts
    assert sum(element.tag.endswith("circle") for element in root.iter()) == 2


def test_png_has_ink_where_the_shapes_are() -> None:
    shapes = (Dot(20, 30, 5, "#ff0000"), Stroke(((50, 10), (50, 90)), "#0000ff", 2), Words(60, 50, "Hi"))
    pixels = pixels_of(as_png(Drawing(100, 100, shapes)))
    assert pixels.shape == (100 * SCALE, 100 * SCALE, 3)
    assert pixels[30 * SCALE, 20 * SCALE].tolist() == [255, 0, 0]
    assert pixels[50 * SCALE, 50 * SCALE].tolist() == [0, 0, 255]
    assert pixels[5, 5].tolist() == [255, 255, 255]
    letters = pixels[38 * SCALE : 51 * SCALE, 60 * SCALE : 80 * SCALE]
    assert (letters == 0).all(axis=2).any() and (letters == 255).all(axis=2).any()


@pytest.mark.parametrize(
    "words", [Words(-30, 50, "left"), Words(95, 98, "right"), Words(50, 2, "top"), Words(500, 5, "x")]
)
def test_words_beyond_the_edge_are_cut(words: Words) -> None:
    assert pixels_of(as_png(Drawing(100, 100, (words,)))).shape == (200, 200, 3)


def test_dashes_leave_gaps() -> None:
    pixels = pixels_of(as_png(Drawing(60, 20, (Stroke(((5, 10), (55, 10)), width=2, dashed=True),))))
    line = pixels[10 * SCALE, :, 0]
    assert (line == 0).any() and (line[5 * SCALE : 55 * SCALE] == 255).any()


def test_all_of_ascii_has_dots() -> None:
    assert columns_of(" ") == bytes(6) and columns_of("é") == columns_of("?")
    shapes = {columns_of(chr(code)) for code in range(33, 127)}
    assert len(shapes) == 94 and bytes(6) not in shapes
