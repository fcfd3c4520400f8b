"""The parts of messages that hold images, in the words of each API.

    {"type": "image_url", "image_url": {"url": "data:...", "detail": "low"}}      OpenAI
    {"type": "input_image", "image_url": "data:...", "detail": "low"}             OpenAI, Responses
    {"type": "image", "source": {"type": "base64", "data": "..."}}                Anthropic; or "url"
    {"type": "image", "image": path, bytes, array or PIL image}                   Python alone
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from twostroke.images.data_url import bytes_of_base64, bytes_of_url
from twostroke.images.remote.allowed import is_remote
from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.user_path import user_path

DETAILS = ("auto", "low", "high", "original")
PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
"""Modes of PIL images that a PNG file keeps as they are."""


class AskedImage(Struct, frozen=True):
    """An image that a message holds. data: the bytes of a file. url: the URL at which another machine has the file, in
    place of its bytes. low: True where few tiles are asked for. among: True for one of several images in a prompt, if
    the model cuts them otherwise than a single image."""

    data: bytes
    low: bool
    url: str = ""
    among: bool = False

    @property
    def name(self) -> ImageName:
        """The key under which the opened image is cached."""
        return (self.url or hashlib.sha256(self.data).digest(), self.low, self.among)


ImageName = tuple[str | bytes, bool, bool]


def image_of(part: Mapping[str, Any], most_bytes: int, *, local: bool = False) -> AskedImage:
    """Returns the image in a part of a message. local: whether the caller's own files, arrays and bytes are accepted.
    Raises InvalidRequest."""
    detail = part.get("detail")
    given = part.get("image_url") if part.get("type") != "image" else part.get("source")
    if isinstance(given, Mapping) and part.get("type") == "image_url":
        detail = given.get("detail", detail)
    if detail is not None and detail not in DETAILS:
        raise InvalidRequest(f"detail {str(detail)[:20]!r} is not known.", fix=f"Use one of {', '.join(DETAILS)}.")
    url = given.get("url") if isinstance(given, Mapping) and given.get("type") != "base64" else given
    if isinstance(url, str) and is_remote(url):
        return AskedImage(b"", detail == "low", url)
    return AskedImage(_bytes_of(part, given, most_bytes, local), detail == "low")


def _bytes_of(part: Mapping[str, Any], given: Any, most_bytes: int, local: bool) -> bytes:
    if isinstance(given, Mapping):
        if given.get("type") == "base64" and isinstance(given.get("data"), str):
            return bytes_of_base64(given["data"], most_bytes)
        given = given.get("url")
    if isinstance(given, str):
        return bytes_of_url(given, most_bytes)
    if local and part.get("image") is not None:
        return _local_bytes(part["image"], most_bytes)
    word = next((name for name in ("file_id", "source") if part.get(name) is not None), None)
    raise InvalidRequest(
        f"The image is given by {word}, which is not read." if word else "The part holds no image.",
        fix='Send {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}.',
    )


def _local_bytes(image: Any, most_bytes: int) -> bytes:
    """Returns the bytes of an image file. image: the path of a file, bytes, a PIL image, or an array (height, width, 3)
    of uint8."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, str) and image.startswith("data:"):
        return bytes_of_url(image, most_bytes)
    if isinstance(image, (str, Path)):
        try:
            with user_path(image).open("rb") as file:
                return file.read(most_bytes + 1)
        except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
            why = getattr(error, "strerror", None) or str(error)
            raise InvalidRequest(f"The image file cannot be read: {why}.", param="image") from None
    if hasattr(image, "save") and hasattr(image, "getbands"):
        return _saved(image)
    return bmp_of(np.asarray(image))


def _saved(image: Any) -> bytes:
    """Returns a PIL image as a PNG file. PNG keeps the modes PNG_MODES; 32 bits of grey become 16, and every other mode
    becomes RGB."""
    saved, mode = io.BytesIO(), image.mode
    try:
        mode = mode if mode in PNG_MODES else "I;16" if mode.startswith("I") else "RGB"
        (image if mode == image.mode else image.convert(mode)).save(saved, "PNG")
    except (OSError, ValueError, SyntaxError) as error:
        why = f"Its pixels cannot be read: {error}."
        raise InvalidRequest("The PIL image cannot be used.", param="image", why=why) from None
    return saved.getvalue()


def bmp_of(pixels: np.ndarray[Any, Any]) -> bytes:
    """Returns an array (height, width, 3) of red, green and blue as a BMP file. Raises InvalidRequest for another
    array."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise InvalidRequest(
            f"An image is an array of {pixels.dtype} with the shape {pixels.shape}.",
            param="image",
            fix="Give an array of uint8 with the shape (height, width, 3).",
        )
    height, width = pixels.shape[:2]
    rows = np.zeros((height, -(-width * 3 // 4) * 4), np.uint8)
    rows[:, : width * 3] = pixels[::-1, :, ::-1].reshape(height, -1)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, rows.nbytes, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + rows.nbytes, 0, 0, 54) + header + rows.tobytes()
