"""Writes safetensors files, each of them completely or not at all.

    u64 little-endian N | N bytes of JSON | data, tensors one after the other
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.quantize.layouts.named import TYPES
from twostroke.types.errors import ConfigError
from twostroke.weights.packed.file import sync_folder

ALIGNMENT = 8
SPARE_BYTES = 32 << 20
"""Bytes of the disk that are kept for tokenizer, config and index."""
Chunks = Callable[[], Iterator[bytes | memoryview]]


@dataclass(frozen=True, eq=False, slots=True)
class TensorToWrite:
    """A tensor to write. dtype: the name that safetensors gives the type. chunks: makes the bytes, piece by piece."""

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    chunks: Chunks

    @classmethod
    def of(cls, values: NDArray[Any]) -> TensorToWrite:
        """Makes the tensor of an array."""
        whole = np.ascontiguousarray(values)
        return cls(
            TYPES[whole.dtype], whole.shape, whole.nbytes, lambda: iter((whole.reshape(-1).view(np.uint8).data,))
        )


def write_tensors(path: Path, tensors: Mapping[str, TensorToWrite]) -> None:
    """Writes a file of tensors. It gets its name when it is complete and on the disk. Raises OSError, and then leaves
    no file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.num_bytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    parts = (chunk for tensor in tensors.values() for chunk in tensor.chunks())
    write_atomically(path, _with_header(text, parts))


def _with_header(text: bytes, parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    yield len(text).to_bytes(8, "little")
    yield text
    yield from parts


def write_atomically(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Writes a file next to its place, then moves it there. Raises OSError; an earlier file stays then."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except BaseException:  # also for Ctrl-C
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def require_room(folder: Path, num_bytes: int) -> None:
    """Raises ConfigError where the disk has no room for `num_bytes` of weights and for the files next to them. The
    folder need not exist yet."""
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    free, needed = shutil.disk_usage(place).free, num_bytes + SPARE_BYTES
    if free < needed:
        raise ConfigError(
            f"The disk of {folder} has {free / 1e9:.2f} GB free, and the result needs {needed / 1e9:.2f} GB.",
            fix="Free some, or give --output a folder on another disk.",
        )
