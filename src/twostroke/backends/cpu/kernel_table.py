"""Tells which kernel runs for which op, format and number of rows. It asks a level's library, which answers from the
tables by which it chooses kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from twostroke.ops.program.op import Op, OperandKind, signature
from twostroke.ops.registry import registry
from twostroke.types.spec.formats import KVKind, WeightKind

MOST_ROWS = 128
"""The table lists the kernel of an op for 1 to MOST_ROWS rows. More rows use the same kernel as MOST_ROWS rows, or are
divided into parts of at least MOST_ROWS rows. The last rows of such a part use the kernel for fewer rows."""

HEAD_DIMS = (64, 80)
"""The head dimensions for which the table asks for the kernel of an attention op: a multiple of 32, and another number.
With matrix registers the kernel depends on whether the dimension is a multiple of 32."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One line of the table: the kernel of an op for first_row to last_row rows. format: the format of its weights, or
    of K and V; "" where it has neither. last_row: None where the kernel is the same for all larger numbers of rows.
    kernel: the name of a C++ function; "" where each format has a single kernel without a name. heads: the condition on
    the size of a head, or ""."""

    op: str
    format: str
    first_row: int
    last_row: int | None
    kernel: str
    heads: str = ""

    def as_json(self) -> dict[str, object]:
        """Returns the fields as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def rows(self) -> str:
        """The numbers of rows as a text: "1 to 3", "4", "5 and more", "any"."""
        if self.last_row is None:
            return "any" if self.first_row == 1 else f"{self.first_row} and more"
        return str(self.first_row) if self.first_row == self.last_row else f"{self.first_row} to {self.last_row}"


class KernelNames(Protocol):
    """A backend that names the kernel by which it computes an op. The table of kernels is made from its answers."""

    def kernel(self, op: str, weights: WeightKind, kv: KVKind, rows: int, head_dim: int) -> str | None:
        """Returns the name of the kernel that an op takes for `rows` rows; None where the op has a single kernel for
        each format, so that nothing is chosen."""


def kernel_table(ops: KernelNames, names: frozenset[str] | None = None) -> list[KernelRow]:
    """Returns all lines of the table for the named ops (None: for every op), in the order of the ops' names."""
    chosen = sorted(registry() if names is None else names)
    return [row for name in chosen for row in _of_op(ops, registry()[name])]


def _of_op(ops: KernelNames, op: type[Op]) -> Iterator[KernelRow]:
    kinds = {operand.kind for operand in signature(op)}
    if OperandKind.WEIGHT in kinds:
        for weight in WeightKind:
            yield from _runs(op.NAME, weight.name.lower(), [_ask(ops, op, weight, KVKind.F32, n) for n in _ROWS])
    elif OperandKind.CACHE in kinds:
        for kv in KVKind:
            yield from _of_heads(ops, op, kv)
    else:
        yield from _runs(op.NAME, "", [_ask(ops, op, WeightKind.F32, KVKind.F32, n) for n in _ROWS])


_ROWS = range(1, MOST_ROWS + 1)


def _of_heads(ops: KernelNames, op: type[Op], kv: KVKind) -> Iterator[KernelRow]:
    whole, other = ([_ask(ops, op, WeightKind.F32, kv, n, dim) for n in _ROWS] for dim in HEAD_DIMS)
    if whole == other:
        yield from _runs(op.NAME, kv.name.lower(), whole)
    else:
        yield from _runs(op.NAME, kv.name.lower(), whole, "multiples of 32")
        yield from _runs(op.NAME, kv.name.lower(), other, "others")


def _ask(ops: KernelNames, op: type[Op], weight: WeightKind, kv: KVKind, rows: int, head_dim: int = 64) -> str:
    return ops.kernel(op.NAME, weight, kv, rows, head_dim) or ""


def _runs(op: str, word: str, kernels: list[str], heads: str = "") -> Iterator[KernelRow]:
    """Yields one line of the table for each range of row counts that has the same kernel. kernels: the kernel for 1
    row, 2 rows and so on."""
    first = 0
    for index, kernel in enumerate(kernels):
        last = index + 1 == len(kernels)
        if last or kernels[index + 1] != kernel:
            yield KernelRow(op, word, first + 1, None if last else index + 1, kernel, heads)
            first = index + 1
