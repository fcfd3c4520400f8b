"""Stacks of experts' matrices, read as one tensor for each expert and matrix.

Some checkpoints of a family hold one, some the other; programs ask for the second.

Knows: what a checkpoint's tensors can be asked.
Must not know: which tensors a program reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twostroke.program.model import ExpertStack
from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource


@dataclass(frozen=True, slots=True)
class StackedTensor:
    """Rows [first_row, first_row + num_rows) of one matrix of a stack (matrices, rows, columns). Satisfies
    `TensorSource`."""

    stack: TensorSource
    matrix: int
    first_row: int
    num_rows: int

    @property
    def info(self) -> TensorInfo:
        """Shape and dtype; offset is the stack's."""
        whole = self.stack.info
        count, rows, columns = whole.shape
        num_bytes = whole.num_bytes // (count * rows) * self.num_rows
        return TensorInfo(whole.dtype, (self.num_rows, columns), whole.offset, num_bytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """See SafetensorsFile.read_rows. The whole matrix is read."""
        begin = self.first_row + first
        rows = self.stack.read_rows(self.matrix, 1)[0][begin : begin + count]
        if out is None:
            return np.ascontiguousarray(rows)
        out.reshape(rows.shape)[...] = rows
        return out


def unstacked(tensors: Mapping[str, TensorSource], stacks: Sequence[ExpertStack]) -> dict[str, TensorSource]:
    """The tensors, where stacks of three axes that divide into the named matrices are replaced by these."""
    found: dict[str, TensorSource] = {}
    for name, tensor in tensors.items():
        stack = next((each for each in stacks if name.endswith(each.name)), None)
        if stack is None or len(tensor.info.shape) != 3 or tensor.info.shape[1] % len(stack.each):
            found[name] = tensor
        else:
            found |= dict(_matrices(name, tensor, stack))
    return found


def _matrices(name: str, tensor: TensorSource, stack: ExpertStack) -> Iterator[tuple[str, StackedTensor]]:
    count, rows, _ = tensor.info.shape
    begin, each = name.rpartition(".")[0], rows // len(stack.each)
    for expert in range(count):
        for place, one in enumerate(stack.each):
            yield f"{begin}.{expert}.{one}.weight", StackedTensor(tensor, expert, place * each, each)
