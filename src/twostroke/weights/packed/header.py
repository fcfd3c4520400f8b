"""The header of a packed file: its content, and how it is written and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

from msgspec import Struct

from twostroke.ops.operands import U8Array
from twostroke.weights.packed.blobs import Blob
from twostroke.weights.packed.block_sums import BLOCK_BYTES, SUM_DIGITS, num_blocks

FAMILY, VERSION = b"TWOSTROKE PACK ", b"2"
PREAMBLE_BYTES = 64
PAGE_BYTES = 4096
MAX_HEADER_BYTES = 256 << 20
ORIGIN_CHARACTERS = 160
ORIGIN_BYTES = 12 * ORIGIN_CHARACTERS
"""The most bytes that JSON may make of the origin's characters."""

Key = Mapping[str, str]
"""Everything on which the bytes depend: fingerprint, formats, layout. Two files with equal keys are interchangeable."""


class StaleFile(Exception):
    """The file is not the planned one (another version, key or length), or it is damaged. The error's text is the
    reason."""


class Extent(Struct, frozen=True):
    """The place of a blob in the file, in bytes."""

    key: str
    offset: int
    num_bytes: int


class FilePlan(Struct, frozen=True):
    """The layout of a file of packed weights: the offsets of all blobs, and the file's length. `key` and the names and
    lengths of the blobs determine it."""

    key: Key
    extents: tuple[Extent, ...]
    header_bytes: int
    file_bytes: int

    @property
    def data_start(self) -> int:
        """The position in the file where the first blob begins."""
        return _aligned(PREAMBLE_BYTES + self.header_bytes)

    def blobs(self, whole: U8Array) -> dict[str, U8Array]:
        """Returns the blobs as views of all bytes of the file."""
        return {e.key: whole[e.offset : e.offset + e.num_bytes] for e in self.extents}


class Header(Struct, frozen=True):
    """The content of a file's header. sums: the checksums of the file's blocks, one after the other. origin: a
    description for people."""

    key: Key
    extents: tuple[Extent, ...]
    sums: str
    origin: str
    header_bytes: int
    file_bytes: int

    @property
    def data_start(self) -> int:
        """The position in the file where the first block begins. The header's length alone determines it."""
        return _aligned(PREAMBLE_BYTES + self.header_bytes)

    def sum_of(self, block: int) -> str:
        """Returns the checksum of a block."""
        return self.sums[block * SUM_DIGITS : (block + 1) * SUM_DIGITS]

    def key_at(self, block: int) -> str:
        """Returns, for messages, the name of the first blob that has bytes in a block of the file."""
        begin = self.data_start + block * BLOCK_BYTES
        return next((e.key for e in self.extents if e.offset + e.num_bytes > begin), "the end of the file")

    def require(self, plan: FilePlan) -> None:
        """Raises StaleFile where this is not the header of the planned file."""
        if self.file_bytes != plan.file_bytes:
            raise StaleFile(f"it has {self.file_bytes:,} bytes, expected {plan.file_bytes:,}")
        same = dict(self.key) == dict(plan.key) and self.extents == plan.extents
        if not same or self.header_bytes != plan.header_bytes:
            raise StaleFile("it holds another model, format or layout")


def plan_file(key: Key, blobs: tuple[Blob, ...]) -> FilePlan:
    """Lays the blobs out after the header, each at a multiple of 4096."""
    offsets, end = [], 0
    for blob in blobs:
        offsets.append(_aligned(end))
        end = offsets[-1] + blob.num_bytes
    end = _aligned(end)
    rows = [Extent(blob.key, 0, blob.num_bytes) for blob in blobs]
    header_bytes = len(_text(key, tuple(rows), "0" * (SUM_DIGITS * num_blocks(end)), "")) + ORIGIN_BYTES
    start = _aligned(PREAMBLE_BYTES + header_bytes)
    extents = tuple(
        Extent(blob.key, start + offset, blob.num_bytes) for blob, offset in zip(blobs, offsets, strict=True)
    )
    return FilePlan(key, extents, header_bytes, start + end)


def encode(plan: FilePlan, sums: str, origin: str) -> bytes:
    """Returns the header's bytes, plan.header_bytes of them. origin: the folder or GGUF file from which the weights
    were packed. Only the last ORIGIN_CHARACTERS characters of it are kept."""
    return _text(plan.key, plan.extents, sums, origin[-ORIGIN_CHARACTERS:]).ljust(plan.header_bytes)


def preamble(header: bytes, file_bytes: int) -> bytes:
    """Returns the bytes before a header: version, lengths, digest."""
    digest = hashlib.blake2b(header, digest_size=32).digest()
    return FAMILY + VERSION + len(header).to_bytes(8, "little") + file_bytes.to_bytes(8, "little") + digest


def parse_header(begin: bytes, read: Callable[[int], bytes], file_bytes: int) -> Header:
    """Parses and checks a header. begin: the preamble. read(n): returns the next n bytes after it. file_bytes: the
    length of the file on the disk. Raises StaleFile."""
    version = begin[len(FAMILY) : len(FAMILY) + 1]
    if begin.startswith(FAMILY) and version != VERSION and version.isdigit():
        raise StaleFile(f"it is of format {version.decode()}, and this program reads and writes {VERSION.decode()}")
    length = int.from_bytes(begin[16:24], "little")
    if not begin.startswith(FAMILY + VERSION) or length > min(MAX_HEADER_BYTES, file_bytes):
        raise StaleFile("its header is damaged, or it is no file of packed weights")
    header, said_bytes = read(length), int.from_bytes(begin[24:32], "little")
    if begin != preamble(header, said_bytes):
        raise StaleFile("its header is damaged")
    if file_bytes != said_bytes:
        raise StaleFile(f"it has {file_bytes:,} bytes, expected {said_bytes:,}")
    found = _parsed(header, file_bytes)
    if len(found.sums) != SUM_DIGITS * num_blocks(file_bytes - found.data_start):
        raise StaleFile("its header does not have one checksum for each block")
    return found


def _parsed(header: bytes, file_bytes: int) -> Header:
    try:
        value = json.loads(header)
        extents = tuple(Extent(str(name), int(offset, 16), int(size)) for name, offset, size in value["blobs"])
        key = {str(name): str(part) for name, part in value["key"].items()}
        return Header(key, extents, str(value["sums"]), str(value["origin"]), len(header), file_bytes)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise StaleFile("its header has another form") from None


def _text(key: Key, extents: tuple[Extent, ...], sums: str, origin: str) -> bytes:
    rows = [[e.key, f"{e.offset:016x}", e.num_bytes] for e in extents]
    value = {"key": dict(sorted(key.items())), "blobs": rows, "sums": sums, "origin": origin}
    return json.dumps(value, separators=(",", ":")).encode()


def _aligned(offset: int) -> int:
    return -(-offset // PAGE_BYTES) * PAGE_BYTES
