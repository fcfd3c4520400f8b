"""Reads data: URLs and base64. Anything that does not have exactly this form is refused."""

from __future__ import annotations

import base64
import binascii

from twostroke.types.errors import InvalidRequest

ESCAPES = {"%2B": "+", "%2b": "+", "%2F": "/", "%2f": "/", "%3D": "=", "%3d": "=", "%0A": "", "%0D": "", "%20": ""}
"""The percent escapes that occur in a URL of base64, with what they stand for. Only these are decoded, so that a long
text is passed over a few times only."""


def bytes_of_url(url: str, most_bytes: int) -> bytes:
    """Returns the bytes of a data: URL. White space around the URL is ignored, and ESCAPES are decoded. Raises
    InvalidRequest for any other URL, and for content that is not base64."""
    scheme, _, rest = url.strip().partition(":")
    if scheme.lower() != "data":
        word = scheme[:12] if _ else "no scheme"
        raise InvalidRequest(
            f"The image's URL has {word!r} in front; only data: URLs are read.",
            param="image",
            fix="Send the file itself: data:image/png;base64,...",
        )
    kind, comma, text = rest.partition(",")
    words = [word.strip().lower() for word in kind.split(";")]
    if not comma or words[-1] != "base64" or not (words[0].startswith("image/") or words[0] in ("", "base64")):
        raise InvalidRequest(
            "The image's data: URL is not data:image/...;base64,...",
            param="image",
            fix="Write the media type of an image, ;base64, and the file in base64 after the comma.",
        )
    for escape, letter in ESCAPES.items() if "%" in text else ():
        text = text.replace(escape, letter)
    return bytes_of_base64(text, most_bytes)


def bytes_of_base64(text: str, most_bytes: int) -> bytes:
    """Returns the decoded bytes. White space is allowed. Raises InvalidRequest for a text that is not base64. A text
    for more than most_bytes bytes is refused before it is decoded."""
    if len(text) * 3 // 4 > most_bytes + len(text) // 16 + 4:
        raise InvalidRequest(
            f"The image has more than {most_bytes:,} bytes.", param="image", fix="Make the image smaller."
        )
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        fix = "Encode the file with the standard alphabet and its padding."
        if text.lstrip().startswith("data:"):
            fix = "Leave out the beginning of the URL, up to the comma: this field takes base64 alone."
        raise InvalidRequest(f"The image is not base64: {error}.", param="image", fix=fix) from None
