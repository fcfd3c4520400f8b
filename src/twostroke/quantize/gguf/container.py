"""The container of GGUF, version 3: keys, the list of tensors, their data from aligned offsets on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twostroke.quantize.driver.tensor_file import write_atomically

ALIGNMENT = 32
VERSION = 3

KeyValue = bool | int | float | str | bytes | Sequence[str] | Sequence[bool] | Sequence[int] | Sequence[float]

_U8, _U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 0, 4, 5, 6, 7, 8, 9


@dataclass(frozen=True, eq=False, slots=True)
class GgufTensorToWrite:
    """A tensor to write. number: the number of the type. shape: rows first, as in arrays. chunks: makes the bytes."""

    number: int
    shape: tuple[int, ...]
    num_bytes: int
    chunks: Callable[[], Iterator[memoryview]]


def write_gguf(path: Path, keys: Mapping[str, KeyValue], tensors: Mapping[str, GgufTensorToWrite]) -> None:
    """Writes the file, which gets its name when it is complete. Raises OSError, and then leaves no file."""
    header = b"GGUF" + struct.pack("<IQQ", VERSION, len(tensors), len(keys))
    header += b"".join(_string(name) + _value(value) for name, value in keys.items())
    offset = 0
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        header += _string(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        header += struct.pack("<IQ", tensor.number, offset)
        offset += tensor.num_bytes + -tensor.num_bytes % ALIGNMENT
    header += b"\0" * (-len(header) % ALIGNMENT)
    write_atomically(path, _parts(header, tensors))


def _parts(header: bytes, tensors: Mapping[str, GgufTensorToWrite]) -> Iterator[bytes | memoryview]:
    yield header
    for tensor in tensors.values():
        yield from tensor.chunks()
        yield b"\0" * (-tensor.num_bytes % ALIGNMENT)


def _string(text: str) -> bytes:
    octets = text.encode()
    return struct.pack("<Q", len(octets)) + octets


def _value(value: KeyValue) -> bytes:
    if isinstance(value, bool | int | float | str):
        return struct.pack("<I", _kind(value)) + _plain(value)
    if isinstance(value, bytes):
        return struct.pack("<IIQ", _ARRAY, _U8, len(value)) + value
    first = value[0] if value else 0
    kind = _I32 if type(first) is int else _kind(first)
    each = (struct.pack("<i", one) if kind == _I32 else _plain(one) for one in value)
    return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(each)


def _kind(value: bool | int | float | str) -> int:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _U32
    return _F32 if isinstance(value, float) else _STRING


def _plain(value: bool | int | float | str) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<?", value)
    if isinstance(value, int):
        return struct.pack("<I", value)
    return struct.pack("<f", value) if isinstance(value, float) else _string(value)
