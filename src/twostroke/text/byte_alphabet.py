"""The 256 printable characters with which byte-level BPE writes bytes (GPT-2's `bytes_to_unicode`)."""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    table.update({chr(256 + place): byte for place, byte in enumerate(hidden)})
    return table


_BYTE_OF = _alphabet()
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}

_FOREIGN = "\u2400"
"""Stands for a character outside the alphabet; it is not part of Latin-1."""
_LATIN = str.maketrans({chr(code): _FOREIGN for code in range(256)} | {c: chr(byte) for c, byte in _BYTE_OF.items()})


def bytes_of(token: str) -> bytes:
    """Returns the bytes that a byte-level token stands for; a token with a foreign character stands for its own UTF-8.
    """
    try:
        return token.translate(_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8")


def text_of(token: bytes) -> str:
    """Returns the token of a byte-level vocabulary that stands for these bytes: the inverse of `bytes_of`."""
    return "".join(map(_CHARACTER_OF.__getitem__, token))
