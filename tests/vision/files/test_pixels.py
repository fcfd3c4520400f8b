"""Pixels compared with transformers' PIL processor, and towers over them: sizes, modes, settings; files by hand."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.vision.folders import SIDE, picture, processed, processor_settings
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits
from twostroke.images.families.idefics3 import read
from twostroke.images.families.registry import read_processor, read_settings
from twostroke.images.parts import bmp_of
from twostroke.images.processor import Cut, Tiling
from twostroke.types.errors import InvalidRequest, ModelError
from twostroke.types.images import Patching
from twostroke.types.spec.fields import Fields

SIZES = [(1, 1), (1, 200), (27, 28), (32, 32), (33, 32), (97, 96), (400, 300), (3, 900), (1000, 7)]
TILING = Tiling(Patching(8, 2), SIDE, 4)
MODES = ("L", "LA", "P", "RGBA", "1", "CMYK")


@pytest.fixture(scope="module")
def decoder() -> Iterator[ImageDecoder]:
    made = ImageDecoder(ImageLimits())
    yield made
    made.close()


def tiles_of(decoder: ImageDecoder, data: bytes, **settings: Any) -> tuple[np.ndarray, Cut]:
    """The bytes of tiles (tiles, height, width, 3)."""
    processor = read(Fields({**processor_settings(), **settings}, "settings"), TILING)
    cuts: list[Cut] = []

    def rule(width: int, height: int) -> tuple[Any, int]:
        cuts.append(processor.cut(width, height))
        return cuts[0].steps, cuts[0].num_bytes

    return np.frombuffer(decoder.tiles(data, rule), np.uint8).reshape(-1, SIDE, SIDE, 3), cuts[0]


def compare(decoder: ImageDecoder, data: bytes, **settings: Any) -> None:
    found, cut = tiles_of(decoder, data, **settings)
    law, rows, columns = processed([Image.open(io.BytesIO(data))], **settings)
    assert (cut.rows, cut.columns) == (rows[0], columns[0])
    own = {**processor_settings(), **settings}
    mean, std = (np.array(own[name])[:, None, None] for name in ("image_mean", "image_std"))
    values = np.array(read(Fields(own, "settings"), TILING).values, np.float32)
    made = np.stack([values[found[..., channel], channel] for channel in range(3)], 1)
    assert np.abs(made - law[0]).max() < 1e-5
    assert np.array_equal(np.rint((law[0] * std + mean) * 255).transpose(0, 2, 3, 1), found)


def saved(image: Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_size(decoder: ImageDecoder, size: tuple[int, int]) -> None:
    compare(decoder, saved(picture(*size)))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode(decoder: ImageDecoder, mode: str) -> None:
    image = picture(50, 41)
    if mode == "RGBA":
        image.putalpha(picture(50, 41, 1).convert("L"))
    image = image.convert(mode)
    compare(decoder, saved(image, "JPEG" if mode == "CMYK" else "PNG"))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_every_format(decoder: ImageDecoder, kind: str) -> None:
    compare(decoder, saved(picture(60, 45), kind))


@pytest.mark.parametrize(
    "settings",
    [{"do_image_splitting": False}, {"size": {"longest_edge": 50}}, {"resample": 3}, {"resample": 2}],
    ids=str,
)
def test_settings(decoder: ImageDecoder, settings: dict[str, Any]) -> None:
    compare(decoder, saved(picture(70, 40)), **settings)


@pytest.mark.parametrize("turn", range(1, 9))
def test_images_are_turned_as_their_cameras_say(decoder: ImageDecoder, turn: int) -> None:
    image, exif = picture(64, 20), Image.Exif()
    exif[0x0112] = turn
    found, cut = tiles_of(decoder, saved(image, exif=exif))
    upright = saved(Image.open(io.BytesIO(saved(image))) if turn == 1 else _turned(image, turn))
    expected, alike = tiles_of(decoder, upright)
    assert (cut.rows > cut.columns) == (turn > 4) and cut == alike
    assert np.array_equal(found, expected)


def _turned(image: Image.Image, turn: int) -> Image.Image:
    ways = Image.Transpose
    order = (ways.FLIP_LEFT_RIGHT, ways.ROTATE_180, ways.FLIP_TOP_BOTTOM, ways.TRANSPOSE, ways.ROTATE_270)
    return image.transpose((*order, ways.TRANSVERSE, ways.ROTATE_90)[turn - 2])


def test_the_upper_bits_of_sixteen_count(decoder: ImageDecoder) -> None:
    grey = np.full((SIDE, SIDE), 0x80FF, np.uint16)
    found, _ = tiles_of(decoder, saved(Image.fromarray(grey)))
    assert (found == 0x80).all()


def test_an_array_is_a_picture(decoder: ImageDecoder) -> None:
    pixels = np.asarray(picture(37, 23))
    assert np.array_equal(
        tiles_of(decoder, bmp_of(pixels))[0], tiles_of(decoder, saved(Image.fromarray(pixels)))[0]
    )
    with pytest.raises(InvalidRequest, match="shape"):
        bmp_of(pixels[0])


def _png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_hostile_files_are_refused_and_the_next_one_is_read(decoder: ImageDecoder) -> None:
    whole = saved(picture(40, 40))
    bad = [whole[:cut] for cut in range(8, len(whole) - 12, 64)]
    bad += [_png(60_000, 60_000, b""), _png(6000, 6000, zlib.compress(b"\0" * 1000)), _png(1, 0, b"")]
    bad += [whole[:40] + b"\xff" * 40 + whole[80:], b"GIF89a" + b"\xff" * 100, b"BM" + b"\xff" * 100]
    for data in bad:
        with pytest.raises(InvalidRequest):
            tiles_of(decoder, data)
    assert len(tiles_of(decoder, whole)[0])


def test_a_process_that_dies_or_hangs_costs_one_image(decoder: ImageDecoder) -> None:
    whole = saved(picture(40, 40))
    tiles_of(decoder, whole)
    process = decoder._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(tiles_of(decoder, whole)[0])
    hanging = ImageDecoder(ImageLimits(wall_s=0.5))
    tiles_of(hanging, whole)
    assert hanging._process is not None
    os.kill(hanging._process.pid, signal.SIGSTOP)
    with pytest.raises(InvalidRequest, match="too long"):
        tiles_of(hanging, whole)
    hanging.close()


def test_a_file_that_is_too_large_is_not_sent(decoder: ImageDecoder) -> None:
    small = ImageDecoder(ImageLimits(file_bytes=100))
    with pytest.raises(InvalidRequest, match="100 bytes"):
        tiles_of(small, saved(picture(40, 40)))
    assert small._process is None


@pytest.mark.parametrize(
    "settings",
    [{"do_center_crop": True}, {"max_image_size": {"longest_edge": 64}}, {"image_std": [0, 1, 1]}, {"resample": 9}],
    ids=str,
)
def test_settings_that_cannot_be_kept_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**processor_settings(), **settings}))
    with pytest.raises(ModelError, match=next(iter(settings))):
        read_processor("idefics3", TILING, read_settings(tmp_path))
