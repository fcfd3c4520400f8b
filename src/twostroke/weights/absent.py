"""Tensors that a checkpoint may leave out because every number of them is zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource


class ZeroTensor(Struct, frozen=True):
    """A tensor of zeros. Satisfies `TensorSource`."""

    shape: tuple[int, ...]

    @property
    def info(self) -> TensorInfo:
        """Shape and dtype; the tensor takes no bytes of any file."""
        return TensorInfo("F32", self.shape, 0, 0)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        if out is None:
            return np.zeros((count, *self.shape[1:]) if self.shape else (), np.float32)
        out[...] = 0
        return out


def with_zeros(
    tensors: Mapping[str, TensorSource], wanted: Iterable[tuple[str, tuple[int, ...]]], endings: tuple[str, ...]
) -> dict[str, TensorSource]:
    """Returns the tensors, and zeros for wanted names that are absent and have one of these endings.

    wanted: names with their shapes.
    """
    absent = {name: shape for name, shape in wanted if name not in tensors and name.endswith(endings)}
    return {**tensors, **{name: ZeroTensor(shape) for name, shape in absent.items()}}
