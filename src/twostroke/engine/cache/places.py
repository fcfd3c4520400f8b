"""Names of pages by all tokens up to their end, and digests that tell a damaged page from a whole one.

Names and digests are the same in every process: pages that travel to another replica and pages on a disk are found by
them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence

DIGEST_BYTES = 16
KEY_BYTES = 33
"""The bytes of one image key as a signed number: keys are negative numbers, 256 bits without the sign
(`types/images.py`)."""


def page_places(salt: str, tokens: Sequence[int], page_tokens: int, first: int = 0) -> Iterator[bytes]:
    """Yields, for each full page from `first` on, a hash of the salt and of all tokens up to the page's end."""
    before = hashlib.blake2b(salt.encode(), digest_size=DIGEST_BYTES).digest()
    for index in range(len(tokens) // page_tokens):
        page = tokens[index * page_tokens : (index + 1) * page_tokens]
        before = hashlib.blake2b(before + _packed(page), digest_size=DIGEST_BYTES).digest()
        if index >= first:
            yield before


def hash_of(data: bytes) -> bytes:
    """Returns the hash of a page's bytes. The thread that receives a page computes it, so that no step waits for it."""
    return hashlib.blake2b(data, digest_size=32).digest()


def page_digest(place: bytes, found: bytes) -> bytes:
    """Returns the digest that detects damage on the way, and pages of other tokens. found: the hash of the page's
    bytes."""
    return hashlib.blake2b(found, digest_size=DIGEST_BYTES, key=place).digest()


def part_place(place: bytes, part: int) -> bytes:
    """Returns the name of the part that another group of layers keeps for the same tokens. part: 0 for the first group.
    """
    return hashlib.blake2b(struct.pack("<i", part), digest_size=DIGEST_BYTES, key=place).digest() if part else place


def _packed(page: Sequence[int]) -> bytes:
    """Returns the tokens as bytes. Tokens take four bytes each; a page with a key of an image takes more, so no two
    pages have the same bytes."""
    try:
        return struct.pack(f"<{len(page)}i", *page)
    except struct.error:
        return b"".join(key.to_bytes(KEY_BYTES, "little", signed=True) for key in page)
