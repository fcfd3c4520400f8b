"""GGUF files written byte by byte, valid or not."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def number(type_number: int, value: float) -> bytes:
    """A value with its type: u8 i8 u16 i16 u32 i32 f32 bool, then u64 i64 f64."""
    code = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}[type_number]
    return struct.pack("<I" + code, type_number, value)


def string(value: str | bytes) -> bytes:
    return struct.pack("<I", 8) + text(value)


def array(type_number: int, count: int, data: bytes) -> bytes:
    return struct.pack("<IIQ", 9, type_number, count) + data


def strings(items: Iterable[str | bytes]) -> bytes:
    parts = [text(item) for item in items]
    return array(8, len(parts), b"".join(parts))


def info(name: str | bytes, sizes: Iterable[int], type_number: int, offset: int) -> bytes:
    sizes = list(sizes)
    head = text(name) + struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", size) for size in sizes)
    return head + struct.pack("<IQ", type_number, offset)


def raw(
    keys: Iterable[tuple[str | bytes, bytes]] = (),
    infos: Iterable[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
    alignment: int = 32,
) -> bytes:
    keys, infos = list(keys), list(infos)
    counts = (len(infos) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    head = magic + struct.pack("<IQQ", version, *counts)
    head += b"".join(text(key) + value for key, value in keys) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
