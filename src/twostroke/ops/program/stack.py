"""ExpertStack: how a checkpoint's stack of experts' matrices divides into tensors of single experts."""

from __future__ import annotations

from msgspec import Struct


class ExpertStack(Struct, frozen=True):
    """A stack (experts, rows, columns) that some checkpoints hold where the program reads a tensor for each expert.

    name: what its name ends with. each: its matrices from top to bottom; that of expert 3 is called as the stack is,
    with `3.each.weight` in place of the last part of the name. transposed: it is stored as (experts, columns, rows).
    paired: rows of its matrices lie in turn. bias: it is a stack (experts, rows) of biases, `3.each.bias`.
    """

    name: str
    each: tuple[str, ...]
    transposed: bool = False
    paired: bool = False
    bias: bool = False
