"""Checksums of blocks, cheap enough to read a whole model after the first answers.

A sector of 4 KiB is 512 little-endian words a[i]. Its sum is w[0]*a[0] + ... + w[511]*a[511] modulo 2^64, with fixed
odd weights w. Damage within one word always changes it; damage of several words is missed about once in 2^64 cases, but
for an even number of words that differ in their highest bits alone. A block's checksum is blake2b-64 of the sums of its
sectors, so sectors that changed places are seen too. NumPy computes the sums without the GIL, several times as fast as
zlib.crc32 and the digests of hashlib.

It is for damage by disks, memory and other programs. It is no defence against a forged file.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import U8Array

SECTOR_BYTES = 4096
BLOCK_BYTES = 256 * 1024
SUM_DIGITS = 16
"""Hexadecimal digits of a block's checksum."""


def num_blocks(num_bytes: int) -> int:
    """How many blocks `num_bytes` bytes have; the last one may be shorter."""
    return -(-num_bytes // BLOCK_BYTES)


def block_sums(data: U8Array) -> list[str]:
    """The checksum of each block of `data`: whole sectors, 8-byte aligned, from the beginning of a block on."""
    sums: NDArray[np.uint64] = data.view("<u8").reshape(-1, SECTOR_BYTES // 8) @ _weights()
    sectors = BLOCK_BYTES // SECTOR_BYTES
    return [
        hashlib.blake2b(sums[first : first + sectors].tobytes(), digest_size=SUM_DIGITS // 2).hexdigest()
        for first in range(0, len(sums), sectors)
    ]


@functools.cache
def _weights() -> NDArray[np.uint64]:
    """(512,) odd uint64, the same for ever: they are part of the file's format."""
    digests = b"".join(hashlib.blake2b(b"twostroke sector %d" % i).digest() for i in range(SECTOR_BYTES // 64))
    return np.frombuffer(digests, "<u8") | np.uint64(1)
