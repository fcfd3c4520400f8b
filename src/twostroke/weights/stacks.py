"""Reads stacks of experts' matrices as one tensor for each expert and matrix.

Some checkpoints of a family hold stacks, others one tensor for each expert and matrix; programs ask for the second
form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from twostroke.ops.program.stack import ExpertStack
from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource


class StackedTensor(Struct, frozen=True):
    """A part of one matrix of a stack: num_rows rows from first_row on, every step-th. The stack is (matrices, rows,
    columns); (matrices, columns, rows) where `turned`; (matrices, rows) for a stack of vectors. Satisfies
    `TensorSource`."""

    stack: TensorSource
    matrix: int
    first_row: int
    num_rows: int
    step: int = 1
    turned: bool = False

    @property
    def info(self) -> TensorInfo:
        """The shape of this part and its dtype. The offset is that of the whole stack in the file."""
        whole = self.stack.info
        count, rows, *columns = (whole.shape[0], whole.shape[2], whole.shape[1]) if self.turned else whole.shape
        num_bytes = whole.num_bytes // (count * rows) * self.num_rows
        return TensorInfo(whole.dtype, (self.num_rows, *columns), whole.offset, num_bytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Returns rows [first, first + count) of this part. The matrix is read whole from the stack each time. out: an
        array for the rows."""
        matrix = self.stack.read_rows(self.matrix, 1)[0]
        own = (matrix.T if self.turned else matrix)[self.first_row :: self.step][: self.num_rows]
        rows = own[first : first + count]
        if out is None:
            return np.ascontiguousarray(rows)
        out.reshape(rows.shape)[...] = rows
        return out


class TurnedStack(Struct, frozen=True):
    """A stack (matrices, rows, columns) whose matrices are stored as (columns, rows). Satisfies `TensorSource`."""

    stack: TensorSource

    @property
    def info(self) -> TensorInfo:
        """The shape after the transposition, with the dtype and the place of the stored stack."""
        whole = self.stack.info
        count, columns, rows = whole.shape
        return TensorInfo(whole.dtype, (count, rows, columns), whole.offset, whole.num_bytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Returns `count` matrices from matrix `first` on, each transposed to (rows, columns). out: an array for them.
        """
        stored = self.stack.read_rows(first, count)
        turned = out if out is not None else np.empty((count, *self.info.shape[1:]), stored.dtype)
        turned.reshape(count, *self.info.shape[1:])[...] = stored.transpose(0, 2, 1)
        return turned


def facing(tensors: Mapping[str, TensorSource], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorSource]:
    """Returns the tensors, with a TurnedStack in place of each stack whose matrices are transposed compared with
    `shapes`.

    Published checkpoints of Qwen3-VL-MoE have stacks (experts, columns, rows); checkpoints that transformers saves have
    (experts, rows, columns).
    """
    return {
        name: TurnedStack(tensor) if _turned(tensor, shapes.get(name)) else tensor for name, tensor in tensors.items()
    }


def _turned(tensor: TensorSource, shape: tuple[int, ...] | None) -> bool:
    found = tensor.info.shape
    return shape is not None and len(shape) == 3 and found != shape and found == (shape[0], shape[2], shape[1])


def unstacked(tensors: Mapping[str, TensorSource], stacks: Sequence[ExpertStack]) -> dict[str, TensorSource]:
    """Returns the tensors, with one tensor for each matrix or bias of each expert in place of the stacks that `stacks`
    describes."""
    found: dict[str, TensorSource] = {}
    for name, tensor in tensors.items():
        stack = next((each for each in stacks if name.endswith(each.name)), None)
        axes = 2 if stack is not None and stack.bias else 3
        if stack is None or len(tensor.info.shape) != axes or _rows(tensor, stack) % len(stack.each):
            found[name] = tensor
        else:
            found |= dict(_matrices(name, tensor, stack))
    return found


def _rows(tensor: TensorSource, stack: ExpertStack) -> int:
    """Returns the number of rows of one expert's matrix, or of elements of its vector."""
    return tensor.info.shape[2 if stack.transposed else 1]


def _matrices(name: str, tensor: TensorSource, stack: ExpertStack) -> Iterator[tuple[str, StackedTensor]]:
    parts, ending = len(stack.each), "bias" if stack.bias else "weight"
    begin, each = name.rpartition(".")[0], _rows(tensor, stack) // parts
    for expert in range(tensor.info.shape[0]):
        for place, one in enumerate(stack.each):
            first, step = (place, parts) if stack.paired else (place * each, 1)
            yield (
                f"{begin}.{expert}.{one}.{ending}",
                StackedTensor(tensor, expert, first, each, step, stack.transposed),
            )
