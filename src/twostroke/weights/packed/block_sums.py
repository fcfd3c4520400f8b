"""Checksums of blocks, fast enough to read a whole model after the first answers.

A sector of 4 KiB is 512 little-endian words a[i]. Its sum is w[0]*a[0] + ... + w[511]*a[511] modulo 2^64, with fixed
odd weights w. Damage within one word always changes the sum. Damage of several words is missed about once in 2^64
cases, unless an even number of words differ only in their highest bits. A block's checksum is blake2b-64 of the sums of
its sectors, so sectors that changed places are found too. NumPy computes the sums without the GIL, several times as
fast as zlib.crc32 and the digests of hashlib.

The checksums detect damage by disks, memory and other programs. They do not protect against a forged file.
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
"""The number of hexadecimal digits of a block's checksum."""


def num_blocks(num_bytes: int) -> int:
    """Returns the number of blocks of `num_bytes` bytes; the last one may be shorter."""
    return -(-num_bytes // BLOCK_BYTES)


def block_sums(data: U8Array) -> list[str]:
    """Returns the checksum of each block of `data`. data: whole sectors, 8-byte aligned; the first byte begins a block.
    """
    sums: NDArray[np.uint64] = data.view("<u8").reshape(-1, SECTOR_BYTES // 8) @ _weights()
    sectors = BLOCK_BYTES // SECTOR_BYTES
    return [
        hashlib.blake2b(sums[first : first + sectors].tobytes(), digest_size=SUM_DIGITS // 2).hexdigest()
        for first in range(0, len(sums), sectors)
    ]


@functools.cache
def _weights() -> NDArray[np.uint64]:
    """Returns the weights w of a sector's sum (see the module): (512,) uint64, all odd. They never change, because the
    checksums in existing files depend on them."""
    digests = b"".join(hashlib.blake2b(b"twostroke sector %d" % i).digest() for i in range(SECTOR_BYTES // 64))
    return np.frombuffer(digests, "<u8") | np.uint64(1)
