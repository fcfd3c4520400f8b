"""GGUF files: the header is parsed and checked in Python, before any offset is used.

    "GGUF" | u32 version (2 or 3) | u64 tensors | u64 keys | keys with values | tensor infos | padding | data

A parsed header is kept as long as some object holds it: opening the same file again takes that header. A file is the
same if its place on the disk, its size and both its times are the same.

Counts, lengths and sums are checked against the file. No key and no tensor may occur twice. A tensor has one to four
sizes, none of them 0, the first a multiple of the block. The alignment is a power of two. Tensors follow one another as
their padded sizes say, inside the file. Python's integers do not wrap. Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import U8Array
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.gguf.block_types import BLOCK_TYPES, BlockType
from twostroke.weights.gguf.header import HeaderReader, Value, corrupt
from twostroke.weights.json_file import open_regular
from twostroke.weights.open_file import OpenFile, check_rows

MAGIC = 0x46554747
MAX_TENSORS = 65_536
MAX_NAME_BYTES = 63
MAX_ELEMENTS = 1 << 60
MAX_ALIGNMENT = 1 << 20
USUAL_ALIGNMENT = 32


class StoredTensor(Struct, frozen=True):
    """shape: slowest axis first, so that the last axis is a row of blocks. offset: the position of the tensor's first
    byte in the file, in bytes."""

    block: BlockType
    shape: tuple[int, ...]
    offset: int

    @property
    def row_bytes(self) -> int:
        """The number of bytes of the elements along the last axis."""
        return self.shape[-1] // self.block.elements * self.block.num_bytes

    @property
    def rows(self) -> int:
        """The number of rows of blocks: the product of all axes but the last."""
        return math.prod(self.shape[:-1])

    @property
    def num_bytes(self) -> int:
        """The number of bytes of all rows."""
        return self.rows * self.row_bytes


@dataclass(frozen=True, eq=False)
class GgufHeader:
    """A header that was parsed and checked. raw: the header's bytes. values: key -> value."""

    raw: bytes
    values: Mapping[str, Value]
    tensors: Mapping[str, StoredTensor]


_parsed: WeakValueDictionary[tuple[int, ...], GgufHeader] = WeakValueDictionary()
"""Parsed headers that some object still holds, by the file from which they were read."""


class GgufFile(OpenFile):
    """An open file. parsed: the file's header; hold it to open the file again without parsing."""

    def __init__(self, path: Path, descriptor: int, parsed: GgufHeader) -> None:
        super().__init__(path, descriptor, parsed.raw)
        self.parsed = parsed
        self.values = parsed.values
        self.tensors = parsed.tensors

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Opens and checks a file. Raises CorruptModel, UnsupportedModel (version 1, big-endian)."""
        descriptor = open_regular(path)
        try:
            status = os.fstat(descriptor)
            same = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            parsed = _parsed.get(same)
            if parsed is None:
                parsed = _parsed[same] = parse_header(HeaderReader(descriptor, status.st_size, path.name))
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, parsed)

    def read_blocks(self, name: str, first: int, count: int) -> U8Array:
        """Returns rows [first, first + count) of a tensor as stored: (count, row_bytes) uint8.

        Raises CorruptModel (the file ends early), IndexError (rows outside).
        """
        tensor = self.tensors[name]
        check_rows(name, first, count, tensor.rows)
        blocks = np.empty((count, tensor.row_bytes), np.uint8)
        self._read_into(blocks, tensor.offset + first * tensor.row_bytes, name)
        return blocks


def parse_header(reader: HeaderReader) -> GgufHeader:
    """Reads and checks a whole header. Raises CorruptModel, UnsupportedModel."""
    if reader.file_bytes < 24 or reader.u32() != MAGIC:
        reader.refuse("it does not begin with the letters GGUF")
    _check_version(reader, reader.u32())
    num_tensors, num_keys = reader.u64(), reader.u64()
    if num_tensors > min(MAX_TENSORS, (reader.file_bytes - reader.at) // 25):
        reader.refuse(f"it claims {num_tensors:,} tensors")
    values = reader.values(num_keys)
    alignment = values.get("general.alignment", USUAL_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        reader.refuse(f"general.alignment is {str(alignment)[:40]}, and it must be a power of two")
    tensors: dict[str, StoredTensor] = {}
    expected = 0
    for _ in range(num_tensors):
        name, tensor = _tensor(reader)
        if name in tensors:
            reader.refuse(f"it has the tensor {name!r} twice")
        if tensor.offset != expected:
            reader.refuse(f"tensor {name!r} begins at byte {tensor.offset:,} of the data, expected {expected:,}")
        expected += -(-tensor.num_bytes // alignment) * alignment
        tensors[name] = tensor
    start = -(-reader.at // alignment) * alignment
    placed = {name: StoredTensor(t.block, t.shape, start + t.offset) for name, t in tensors.items()}
    for name, tensor in placed.items():
        if tensor.offset + tensor.num_bytes > reader.file_bytes:
            reader.refuse(f"tensor {name!r} ends after the end of the file")
    return GgufHeader(reader.header, values, placed)


def _check_version(reader: HeaderReader, version: int) -> None:
    if version & 0xFFFF == 0:
        raise UnsupportedModel(
            f"{reader.place} is a big-endian GGUF file.",
            why="Its version is stored with the highest byte first.",
            fix="Use the usual file of this model, which is little-endian.",
        )
    if version not in (2, 3):
        raise UnsupportedModel(
            f"{reader.place} is a GGUF file of version {version}.",
            why="Versions 2 and 3 are read.",
            fix="Convert the model again with a current llama.cpp, or download a newer file.",
        )


def _tensor(reader: HeaderReader) -> tuple[str, StoredTensor]:
    """Reads the name and the description of one tensor. The offset is still counted from the beginning of the data."""
    name = reader.text("a tensor's name", MAX_NAME_BYTES)
    if not name or not name.isprintable():
        reader.refuse(f"a tensor has the impossible name {name!r}")
    num_sizes = reader.u32()
    if not 1 <= num_sizes <= 4:
        reader.refuse(f"tensor {name!r} has {num_sizes:,} sizes, and 1 to 4 are possible")
    sizes = [reader.u64() for _ in range(num_sizes)]
    type_number, offset = reader.u32(), reader.u64()
    block = BLOCK_TYPES.get(type_number)
    if block is None:
        raise UnsupportedModel(
            f"{reader.place}: tensor {name!r} has the unknown type {type_number}.",
            why="The types of ggml that are read: " + ", ".join(sorted(t.name for t in BLOCK_TYPES.values())) + ".",
            fix="Use another quantization of the same model.",
        )
    if 0 in sizes or math.prod(sizes) > MAX_ELEMENTS:
        reader.refuse(f"tensor {name!r} has the impossible sizes {sizes}")
    if sizes[0] % block.elements:
        reader.refuse(f"tensor {name!r} has rows of {sizes[0]:,}, no multiple of {block.name}'s {block.elements}")
    return name, StoredTensor(block, tuple(reversed(sizes)), offset)


def open_split(path: Path) -> dict[str, GgufFile]:
    """Opens a file and the other files of the same model, by name, the first one first. Raises CorruptModel,
    UnsupportedModel."""
    first = GgufFile.open(path)
    files = {path.name: first}
    try:
        count = first.values.get("split.count", 1)
        if type(count) is not int or not 0 <= count <= 4096:
            raise corrupt(path.name, f"split.count is {str(count)[:40]}")
        for index, name in enumerate(_split_names(path, first, count)[1:], 1):
            files[name] = GgufFile.open(path.parent / name)
            if files[name].values.get("split.no") != index or files[name].values.get("split.count") != count:
                raise corrupt(name, f"it is not part {index + 1} of {count} of {path.name}")
        names = [name for file in files.values() for name in file.tensors]
        if len(names) != len(set(names)):
            raise corrupt(path.name, "two of its parts hold a tensor of the same name")
        total = first.values.get("split.tensors.count", len(names))
        if count > 1 and total != len(names):
            raise corrupt(path.name, f"its {count} parts hold {len(names):,} tensors, and it names {total}")
    except BaseException:
        for file in files.values():
            file.close()
        raise
    return files


def _split_names(path: Path, first: GgufFile, count: int) -> list[str]:
    if count <= 1:
        return [path.name]
    ending = f"-00001-of-{count:05}.gguf"
    if first.values.get("split.no") != 0 or not path.name.lower().endswith(ending):
        raise CorruptModel(
            f"{path.name} is not the first of {count} parts.",
            why="The first holds what all parts need.",
            fix=f"Give the file that ends in {ending}, with the others next to it.",
        )
    stem, kind = path.name[: -len(ending)], path.name[-len(".gguf") :]
    names = [f"{stem}-{index + 1:05}-of-{count:05}{kind}" for index in range(count)]
    missing = [name for name in names if not (path.parent / name).exists()]
    if missing:
        raise CorruptModel(
            f"{missing[0]} is missing in {path.parent}.",
            why=f"{len(missing)} of the {count} parts of {path.name} are not there.",
            fix="Download them all into one folder.",
        )
    return names
