"""Safetensors files: the header is parsed and checked in Python, before any offset is used.

    u64 little-endian N | N bytes of JSON, {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...} | data

N must be at most 100 MB and inside the file. Names must not repeat, and dtypes must be known. Shapes must have whole
numbers whose product times the element size is the length. Tensors must lie one after another from 0 to the end of the
file, without a hole and without an overlap. Python's integers do not wrap, so every product is exact.
"""

from __future__ import annotations

import math
import os
import reprlib
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.ops.operands import U8Array
from twostroke.system import here
from twostroke.types.errors import CorruptModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN, open_regular, parse_object
from twostroke.weights.open_file import OpenFile, check_rows
from twostroke.weights.tensor_source import SourceArray, TensorInfo, readable_dtype

MAX_HEADER_BYTES = 100_000_000
MAX_TENSORS = 65_536
MAX_DIMENSIONS = 8
MAX_OFFSET = 1 << 62

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Every dtype of the format. Only F32, BF16 and F16 can be read as matrices."""
WHOLE_NUMBERS: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
"""The whole-number types from which vectors may be read."""


class SafetensorsFile(OpenFile):
    """An open file. tensors: name -> TensorInfo."""

    def __init__(self, path: Path, descriptor: int, header: bytes, tensors: dict[str, TensorInfo]) -> None:
        super().__init__(path, descriptor, header)
        self.tensors = tensors

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Opens and checks a file. Raises CorruptModel."""
        descriptor = open_regular(path)
        try:
            file_bytes = os.fstat(descriptor).st_size
            header = _read_header(descriptor, file_bytes, path.name)
            tensors = _parse_header(header, file_bytes - 8 - len(header), path.name)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, header, tensors)

    def read_rows(self, name: str, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Returns rows [first, first + count) of the first axis, (count, ...). The result is bf16 bits for BF16, and
        float32 for F32, F16 and whole numbers (tables of experts; exact below 2^24).

        out: an array for the rows, C-contiguous, of that dtype and of count * row_elements elements. Raises
        CorruptModel (file ends early), UnsupportedModel (dtype), IndexError (rows outside).
        """
        info = self.tensors[name]
        stored = WHOLE_NUMBERS.get(info.dtype) or readable_dtype(name, info)
        check_rows(name, first, count, info.rows)
        shape = (count, *info.shape[1:]) if info.shape else ()
        offset = info.offset + first * info.row_elements * stored.itemsize
        if out is not None:
            _check_target(name, out, stored, count * info.row_elements)
        if info.dtype == "F16" or info.dtype in WHOLE_NUMBERS:
            stored_values = np.empty(shape, stored)
            self._read_into(stored_values, offset, name)
            if out is None:
                return stored_values.astype(np.float32)
            out.reshape(shape)[...] = stored_values
            return out
        target = np.empty(shape, stored) if out is None else out
        self._read_into(target, offset, name)
        return target

    def read(self, name: str) -> SourceArray:
        """Returns the whole tensor, in its shape. Raises the errors of `read_rows`."""
        return self.read_rows(name, 0, self.tensors[name].rows)

    def read_raw(self, name: str, first: int, count: int) -> U8Array:
        """Returns the bytes of rows [first, first + count), of any type. Raises CorruptModel (file ends early),
        IndexError."""
        info = self.tensors[name]
        check_rows(name, first, count, info.rows)
        row_bytes = info.num_bytes // max(1, info.rows)
        found = np.empty(count * row_bytes, np.uint8)
        self._read_into(found, info.offset + first * row_bytes, name)
        return found


def _check_target(name: str, out: SourceArray, stored: np.dtype[Any], elements: int) -> None:
    wanted = np.dtype(np.uint16 if stored.kind == "u" else np.float32)
    if out.dtype != wanted or out.size != elements or not out.flags.c_contiguous:
        raise ValueError(f"{name}: rows need {elements} contiguous elements of {wanted}, not {out.size} of {out.dtype}")


def _read_header(descriptor: int, file_bytes: int, place: str) -> bytes:
    raw_length = here.read_at(descriptor, 8, 0)
    length = int.from_bytes(raw_length, "little")
    if len(raw_length) < 8 or length < 2 or length > min(MAX_HEADER_BYTES, file_bytes - 8):
        raise _corrupt(place, f"its header claims {length:,} bytes, the file has {file_bytes:,}")
    header = here.read_at(descriptor, length, 8)
    if len(header) != length or header[:1] != b"{":
        raise _corrupt(place, "its header is not a JSON object")
    return header


def _parse_header(header: bytes, data_bytes: int, place: str) -> dict[str, TensorInfo]:
    members = parse_object(header, f"The header of {place}")
    metadata = members.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _corrupt(place, "__metadata__ must map strings to strings")
    if len(members) > MAX_TENSORS:
        raise _corrupt(place, f"it names {len(members):,} tensors, at most {MAX_TENSORS:,} are read")
    data_start = 8 + len(header)
    tensors = {name: _parse_tensor(name, member, data_start, place) for name, member in members.items()}
    end = data_start
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].num_bytes)):
        if info.offset != end:
            raise _corrupt(place, f"tensor {name[:100]} begins at byte {info.offset:,}, expected {end:,}")
        end += info.num_bytes
    if end != data_start + data_bytes:
        raise _corrupt(place, f"its tensors end at byte {end:,}, the file at {data_start + data_bytes:,}")
    return tensors


def _parse_tensor(name: str, member: object, data_start: int, place: str) -> TensorInfo:
    if not isinstance(member, dict) or member.keys() != {"dtype", "shape", "data_offsets"}:
        raise _corrupt(place, f"tensor {name[:100]} must have dtype, shape and data_offsets")
    dtype, shape, offsets = member["dtype"], member["shape"], member["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _corrupt(place, f"tensor {name[:100]} has the unknown dtype {reprlib.repr(dtype)}")
    if not _whole_numbers(shape) or len(shape) > MAX_DIMENSIONS:
        raise _corrupt(place, f"tensor {name[:100]} has the impossible shape {reprlib.repr(shape)}")
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _corrupt(place, f"tensor {name[:100]} has the impossible offsets {reprlib.repr(offsets)}")
    begin, end = offsets
    if math.prod(shape) * DTYPE_BITS[dtype] != (end - begin) * 8:
        raise _corrupt(place, f"tensor {name[:100]}: {dtype} {shape} does not take {end - begin:,} bytes")
    return TensorInfo(dtype, tuple(shape), data_start + begin, end - begin)


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= MAX_OFFSET for item in value)


def _corrupt(place: str, why: str) -> CorruptModel:
    return CorruptModel(
        f"{place} is not a sound safetensors file.", why=f"{why[:1].upper()}{why[1:]}.", fix=DOWNLOAD_AGAIN
    )
