"""The 256 printable characters that byte-level BPE writes bytes with (GPT-2's `bytes_to_unicode`).

Knows: bytes and characters.
Must not know: vocabularies.
"""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    table.update({chr(256 + place): byte for place, byte in enumerate(hidden)})
    return table


_BYTE_OF = _alphabet()
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}


def bytes_of(token: str) -> bytes:
    """The bytes that a byte-level token stands for; a token with a foreign character stands for its own UTF-8."""
    found = [_BYTE_OF.get(character) for character in token]
    if None in found:
        return token.encode("utf-8")
    return bytes(byte for byte in found if byte is not None)


def text_of(token: bytes) -> str:
    """The token of a byte-level vocabulary that stands for these bytes: the inverse of `bytes_of`."""
    return "".join(map(_CHARACTER_OF.__getitem__, token))
