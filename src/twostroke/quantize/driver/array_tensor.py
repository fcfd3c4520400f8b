"""ArrayTensor: numbers in memory in the place of a tensor of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource


@dataclass(frozen=True, eq=False, slots=True)
class ArrayTensor:
    """Numbers in memory that replace a tensor of a checkpoint, for example rounded weights before they are written.
    values: an array of float32. Satisfies `TensorSource`."""

    values: F32Array

    @property
    def info(self) -> TensorInfo:
        """The shape and type of the numbers. They are only in memory, so their place in a file is 0."""
        return TensorInfo("F32", self.values.shape, 0, self.values.nbytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        found = self.values[first : first + count] if self.values.ndim else self.values
        if out is None:
            return np.ascontiguousarray(found, np.float32)
        out.reshape(found.shape)[...] = found
        return out


def overlaid(checkpoint: Checkpoint, changed: Mapping[str, TensorSource]) -> Checkpoint:
    """Returns the checkpoint with the tensors in `changed` replaced. The open files are the same."""
    return Checkpoint(checkpoint.folder, checkpoint.shards, {**checkpoint.tensors, **changed})
