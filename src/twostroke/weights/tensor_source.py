"""The interface of a checkpoint's tensors, for every kind of file in which they may lie."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import F32Array, U16Array, bf16_to_f32
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.formats import WeightKind

READABLE: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "F16": np.dtype("<f2")}

ORDER = ".column_order"
"""The ending of the name of a tensor that no file holds: the order of a matrix's columns."""

SourceArray = F32Array | U16Array
"""The numbers of a tensor, as readers return them: float32, or uint16 with the bits of bf16."""
LIMIT = 2.0**60
"""The magnitude that no number of a matrix or vector may reach: codecs square weights in float32."""


class TensorInfo(Struct, frozen=True):
    """What is known of a tensor before it is read. offset: the position of the tensor's first byte in the file, in
    bytes. blocks: the block type of ggml, or the format of a quantized matrix; "" for a tensor of plain numbers. kinds:
    the stored kinds that keep a quantized matrix without loss."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    blocks: str = ""
    kinds: frozenset[WeightKind] = frozenset()

    @property
    def rows(self) -> int:
        """The length of the first axis (1 for a scalar)."""
        return self.shape[0] if self.shape else 1

    @property
    def row_elements(self) -> int:
        """The number of elements of one row: the product of all axes after the first."""
        return math.prod(self.shape[1:])


class TensorSource(Protocol):
    """One tensor of a checkpoint, which can be read row by row from the file in which it lies."""

    @property
    def info(self) -> TensorInfo:
        """The tensor's shape, dtype and place in the file."""

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Returns rows [first, first + count) of the first axis: float32, or uint16 with the bits of bf16. out: an
        array for the rows, of the result's dtype and size; None for a new array."""


class WeightFile(Protocol):
    """An open file of tensors. header: the bytes of its header, for fingerprints."""

    path: Path
    header: bytes

    def read_at(self, offset: int, num_bytes: int) -> bytes:
        """Returns `num_bytes` bytes from `offset` on; fewer at the end of the file."""

    def close(self) -> None:
        """Closes the file."""


def readable_dtype(name: str, info: TensorInfo) -> np.dtype[Any]:
    """Returns the stored element type. Raises UnsupportedModel for integer and 8-bit checkpoints."""
    if info.dtype not in READABLE:
        raise UnsupportedModel(
            f"Tensor {name[:100]} has dtype {info.dtype}.",
            why="Weights are read as " + ", ".join(READABLE) + ".",
            fix="Use the model's original checkpoint, not a quantized one.",
        )
    return READABLE[info.dtype]


def as_f32(values: SourceArray) -> F32Array:
    """Returns numbers in float32. values: float32, or uint16 with the bits of bf16."""
    return bf16_to_f32(values.view(np.uint16)) if values.dtype == np.uint16 else values.astype(np.float32, copy=False)
