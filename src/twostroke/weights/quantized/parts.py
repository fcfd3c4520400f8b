"""The stored tensors that a quantized matrix is made of: checked by shape and type, read as raw numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, U8Array, bf16_to_f32
from twostroke.types.errors import CorruptModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN
from twostroke.weights.quantized.bits import E4M3, powers
from twostroke.weights.tensor_source import TensorInfo

_RAW: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "F64": np.dtype("<f8"),
    "F8_E4M3": np.dtype("u1"), "F8_E8M0": np.dtype("u1"), "U8": np.dtype("u1"), "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"), "I32": np.dtype("<i4"), "U32": np.dtype("<u4"), "I64": np.dtype("<i8"),
}  # fmt: skip

FLOATS = ("F32", "F16", "BF16")
WORDS = ("I32", "U32")


class RawTensor(Protocol):
    """A tensor of a safetensors file (`checkpoint.SafetensorsTensor`)."""

    @property
    def info(self) -> TensorInfo:
        """The tensor's shape, dtype, and place in the file."""

    def read_raw(self, first: int, count: int) -> U8Array:
        """Returns the bytes of rows [first, first + count). Raises CorruptModel where the file ends early."""


class StoredPart(Struct, frozen=True, eq=False):
    """One stored tensor of a quantized matrix, such as its codes or its scales. seen_as: the real type of the elements,
    where the file stores their bytes under an integer type; else ""."""

    name: str
    tensor: RawTensor
    seen_as: str = ""

    @property
    def info(self) -> TensorInfo:
        """Shape and type."""
        return self.tensor.info

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.seen_as or self.info.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in elements."""
        stored = self.tensor.info.shape
        if not self.seen_as or not stored:
            return stored
        each = _RAW[self.info.dtype].itemsize // _RAW[self.seen_as].itemsize
        return (*stored[:-1], stored[-1] * each)

    def rows(self, first: int, count: int) -> NDArray[Any]:
        """Returns rows as they are stored, with bf16 and floats of 8 bits as whole numbers."""
        raw = self.tensor.read_raw(first, count).view(_RAW[self.dtype])
        return raw.reshape((count, *self.shape[1:]) if self.shape else ())

    def whole(self) -> NDArray[Any]:
        """Returns all rows."""
        return self.rows(0, self.info.rows)

    def floats(self, first: int = 0, count: int | None = None) -> F32Array:
        """Returns rows as float32. Raises CorruptModel where a number is NaN or infinite."""
        raw = self.rows(first, self.info.rows - first if count is None else count)
        dtype = self.dtype
        if dtype == "BF16":
            found = bf16_to_f32(raw)
        elif dtype == "F8_E4M3":
            found = E4M3[raw]
        elif dtype in ("F8_E8M0", "U8"):
            found = powers(raw)
        else:
            found = raw.astype(np.float32)
        if not np.isfinite(found).all():
            raise CorruptModel(
                f"Tensor {self.name[:200]} holds numbers that are NaN or infinite.",
                why="One of them makes every answer NaN.",
                fix=DOWNLOAD_AGAIN,
            )
        return found

    def wrong(self, why: str) -> CorruptModel:
        """Returns an error that names this tensor."""
        return CorruptModel(f"Tensor {self.name[:200]} cannot be read as quantized weights.", why=why, fix=FIX)


FIX = "config.json and the weights do not belong together, or the files are damaged: download both again."


class StoredTensors(Struct, frozen=True):
    """All tensors of the files, by name."""

    tensors: Mapping[str, RawTensor]

    def modules(self, ending: str) -> list[str]:
        """Returns the names of the tensors with this ending, without the ending."""
        return [name.removesuffix(ending) for name in self.tensors if name.endswith(ending)]

    def has(self, name: str) -> bool:
        """Returns whether there is a tensor of this name."""
        return name in self.tensors

    def part(self, name: str, dtypes: tuple[str, ...], shape: tuple[int | None, ...] | None = None) -> StoredPart:
        """Returns a tensor of one of these types; None in `shape` stands for any size. Raises CorruptModel."""
        if name not in self.tensors:
            raise CorruptModel(
                f"The checkpoint lacks the tensor {name[:200]}.",
                why="The other parts of this quantized matrix are there.",
                fix=FIX,
            )
        part = StoredPart(name, self.tensors[name])
        if part.info.dtype not in dtypes:
            raise part.wrong(f"It has the type {part.info.dtype}, expected {' or '.join(dtypes)}.")
        if 0 in part.shape:
            raise part.wrong(f"It has the shape {list(part.shape)}: it is empty.")
        if shape is not None and not _fits(part.shape, shape):
            expected = ", ".join("any" if size is None else str(size) for size in shape)
            raise part.wrong(f"It has the shape {list(part.shape)}, expected [{expected}].")
        return part


def _fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(s is None or s == f for f, s in zip(found, shape, strict=True))


class Held:
    """A cache of one value: the value that was computed last is kept, so that pieces of one matrix are not read from
    the beginning each time."""

    def __init__(self) -> None:
        self._key: object = None
        self._value: Any = None

    def get(self, key: object, make: Any) -> Any:
        """Returns the value of `key`. It is kept from the last call if that had the same key; else `make()` computes
        it."""
        if self._key != key:
            self._key, self._value = None, None  # frees the old value first
            self._value = make()
            self._key = key
        return self._value
