"""ExpertStack: how a checkpoint's stack of experts' matrices divides into tensors of single experts."""

from __future__ import annotations

from msgspec import Struct


class ExpertStack(Struct, frozen=True):
    """A stack (experts, rows, columns) that some checkpoints hold where the program reads a tensor for each expert.

    name: the end of the stack's name. each: the names of its matrices from top to bottom. The matrix `each` of expert 3
    has the stack's name, with `3.each.weight` in place of the last part. transposed: whether the stack is stored as
    (experts, columns, rows). paired: whether rows of its matrices alternate. bias: whether it is a stack (experts,
    rows) of biases, named `3.each.bias`.
    """

    name: str
    each: tuple[str, ...]
    transposed: bool = False
    paired: bool = False
    bias: bool = False
