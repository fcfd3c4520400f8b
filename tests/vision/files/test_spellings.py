"""One picture in all spellings of data: URLs and in all objects of Python. Formats that are not read are named."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from tests.vision.folders import picture, png
from twostroke.images.data_url import bytes_of_base64, bytes_of_url
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits, format_of
from twostroke.images.parts import image_of
from twostroke.types.errors import InvalidRequest

SEEN = picture(40, 30)
FILE = png(SEEN)
TEXT = base64.b64encode(FILE).decode()
LINES = "\r\n".join(TEXT[at : at + 76] for at in range(0, len(TEXT), 76))
ESCAPED = quote(TEXT, safe="")
MOST = 1 << 20


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{TEXT}",
        f"DATA:IMAGE/PNG;BASE64,{TEXT}",
        f"data:image/jpg;base64,{TEXT}",
        f"data:image/png;charset=utf-8;base64,{TEXT}",
        f"data:image/png; base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f" \n data:image/png;base64,{TEXT}\n",
        f"data:image/png;base64,\n{LINES}\n",
        f"data:image/png;base64,{ESCAPED}",
    ],
    ids=(
        "usual",
        "capitals",
        "another media type",
        "a charset",
        "a space",
        "no media type",
        "around",
        "lines",
        "escapes",
    ),
)
def test_every_spelling_of_a_data_url_is_read(url: str) -> None:
    assert "+" in TEXT and "/" in TEXT and TEXT.endswith("=") and "%" in ESCAPED
    assert bytes_of_url(url, MOST) == FILE


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"data:image/png;base64,{TEXT.rstrip('=')}", "padding"),
        (f"data:image/png;base64,{TEXT.replace('+', '-').replace('/', '_')}", "standard alphabet"),
        (f"data:image/png,{quote(FILE)}", ";base64"),
        (f"data:application/pdf;base64,{TEXT}", "media type of an image"),
        (f"data:image/png;base64;{TEXT}", ";base64"),
        (f"blob:{TEXT}", "only data: URLs"),
        (f"data:image/png;base64,%zz{TEXT}", "not base64"),
    ],
)
def test_other_urls_are_refused_with_what_to_send(url: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bytes_of_url(url, MOST)
    assert words in str(refused.value) and refused.value.param == "image"


def test_a_url_where_base64_alone_is_wanted_is_told_by_its_beginning() -> None:
    with pytest.raises(InvalidRequest, match="Leave out the beginning of the URL"):
        bytes_of_base64(f"data:image/png;base64,{TEXT}", MOST)


OTHERS: dict[str, bytes] = {
    "SVG": b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- drawn -->\n<svg xmlns='http://www.w3.org/2000/svg'/>",
    "TIFF": b"II*\0" + bytes(20),
    "PDF": b"%PDF-1.7",
    "AVIF": b"\0\0\0\x20ftypavif" + bytes(20),
    "HEIC": b"\0\0\0\x20ftypmif1" + bytes(20),
    "MP4": b"\0\0\0\x20ftypisom" + bytes(20),
    "JPEG XL": b"\xff\x0a" + bytes(20),
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(20),
    "no format": b"<!DOCTYPE html><html><body>404</body></html>",
    "no bytes": b"",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_format_that_is_not_read_is_named(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        format_of(OTHERS[name])
    assert name in refused.value.what and "PNG, JPEG, WebP, GIF or BMP" in str(refused.value)


def shown(given: Any) -> np.ndarray[Any, Any]:
    """The pixels that the model's processor gets of an object of Python."""
    data = image_of({"type": "image", "image": given}, MOST, local=True).data
    decoder = ImageDecoder(ImageLimits())
    try:
        made = decoder.tiles(data, lambda width, height: ([("tile", 0, 0, width, height)], 3 * width * height))
    finally:
        decoder.close()
    return np.frombuffer(made, np.uint8).reshape(SEEN.height, SEEN.width, 3)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I", "CMYK", "YCbCr", "HSV", "RGBX", "PA"])
def test_pil_images_of_every_mode_are_read(mode: str) -> None:
    grey = SEEN.convert("L")
    image = grey.convert("I").point(lambda value: value * 256) if mode == "I" else SEEN.convert(mode)
    wanted = (grey if mode == "I" else image).convert("RGB")
    far = np.abs(shown(image).astype(int) - np.asarray(wanted).astype(int)).max()
    assert far <= 1, (mode, far)


def test_objects_that_are_no_image_are_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.png"
    cut.write_bytes(FILE[: len(FILE) // 2])
    wrong: list[tuple[Any, str]] = [
        (Image.open(cut), "PIL image"),
        (np.zeros((4, 4), np.uint8), "shape (4, 4)"),
        (np.zeros((4, 4, 3), np.float32), "float32"),
        (np.zeros((0, 4, 3), np.uint8), "shape (0, 4, 3)"),
        (7, "array"),
        ("no\0file.png", "cannot be read"),
        (str(tmp_path), "cannot be read"),
        (tmp_path / "none.png", "cannot be read"),
    ]
    for given, words in wrong:
        with pytest.raises(InvalidRequest) as refused:
            image_of({"type": "image", "image": given}, MOST, local=True)
        assert words in str(refused.value), given
