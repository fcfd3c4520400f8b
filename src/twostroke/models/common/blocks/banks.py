"""How checkpoints hold the matrices of experts: one tensor for each, or stacks of all experts' matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from twostroke.ops.program.stack import ExpertStack
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, Tensor, Weight

GATE_UP, DOWN = "gate_up", "down"
"""The roles of the two banks. The first is GATE_UP even where there is no gate."""
UP_OR_DOWN = {GATE_UP: "up_proj", DOWN: "down_proj"}
"""The name of a bank that has one matrix for each expert, by role."""


@dataclass(frozen=True, slots=True)
class BankShape:
    """The sizes of a layer's experts. experts: their number. gated: each expert's first product makes a gate, and as
    many elements that the gate multiplies. biased: the products have biases."""

    experts: int
    hidden_size: int
    inner_size: int
    gated: bool = True
    biased: bool = False

    @property
    def first_rows(self) -> int:
        """The number of rows of an expert's first product."""
        return (1 + self.gated) * self.inner_size


class Banks(Protocol):
    """Builds the two banks of a layer's experts, one of first and one of second products, from the tensors of a
    checkpoint."""

    def gate_up(self, t: Tracer, shape: BankShape) -> Weight:
        """Returns the bank of first products: for each expert all rows of the gate, then all rows that the gate
        multiplies."""

    def down(self, t: Tracer, shape: BankShape) -> Weight:
        """Returns the bank of the experts' second products."""


@dataclass(frozen=True, slots=True)
class EachExpert:
    """The checkpoint has a tensor for each expert and matrix, with the name bank.NUMBER.gate and so on. gate: empty
    where there is no gate. Satisfies `Banks`."""

    bank: str
    gate: str = "gate_proj"
    up: str = "up_proj"
    down_name: str = "down_proj"

    def gate_up(self, t: Tracer, shape: BankShape) -> Weight:
        names = (self.gate, self.up) if shape.gated else (self.up,)
        return self._bank(t, shape, GATE_UP, names, shape.inner_size, shape.hidden_size)

    def down(self, t: Tracer, shape: BankShape) -> Weight:
        return self._bank(t, shape, DOWN, (self.down_name,), shape.hidden_size, shape.inner_size)

    def _bank(self, t: Tracer, shape: BankShape, role: str, names: tuple[str, ...], rows: int, columns: int) -> Weight:
        names = tuple(f"{self.bank}.{expert}.{name}" for expert in range(shape.experts) for name in names)
        parts = tuple(Tensor(t.name(f"{name}.weight"), (rows, columns)) for name in names)
        biases = tuple(Tensor(t.name(f"{name}.bias"), (rows,)) for name in names) if shape.biased else ()
        return t.weight(role, len(names) // shape.experts * rows, columns, parts, biases, experts=shape.experts)


@dataclass(frozen=True, slots=True)
class RowsOfExperts:
    """The checkpoint has one tensor for each of the three matrices. The tensor has one row for each inner element,
    expert by expert, so `down_name` holds each expert's second product transposed. The fields are full names after the
    layer's prefix. Satisfies `Banks`."""

    gate: str
    up: str
    down_name: str

    def gate_up(self, t: Tracer, shape: BankShape) -> Weight:
        parts = tuple(
            Tensor(t.name(name), self._whole(shape), rows=inner)
            for inner in self._inner(shape)
            for name in (self.gate, self.up)
        )
        return t.weight(GATE_UP, shape.first_rows, shape.hidden_size, parts, experts=shape.experts)

    def down(self, t: Tracer, shape: BankShape) -> Weight:
        name, whole = t.name(self.down_name), self._whole(shape)
        parts = tuple(Tensor(name, whole, transposed=True, columns=inner) for inner in self._inner(shape))
        return t.weight(DOWN, shape.hidden_size, shape.inner_size, parts, experts=shape.experts)

    def _whole(self, shape: BankShape) -> tuple[int, int]:
        return shape.experts * shape.inner_size, shape.hidden_size

    def _inner(self, shape: BankShape) -> list[tuple[int, int]]:
        """Returns for each expert its first row, and the row after its last one."""
        firsts = range(0, shape.experts * shape.inner_size, shape.inner_size)
        return [(first, first + shape.inner_size) for first in firsts]


@dataclass(frozen=True, slots=True)
class StackEach:
    """The checkpoint has one tensor (experts, rows, columns) for each of the three matrices. The fields are full names
    after the layer's prefix. Satisfies `Banks`."""

    gate: str
    up: str
    second: str

    def gate_up(self, t: Tracer, shape: BankShape) -> Weight:
        count, rows, columns = shape.experts, shape.inner_size, shape.hidden_size
        stacks = [tuple(_matrices(t.name(name), (count, rows, columns), False, None)) for name in (self.gate, self.up)]
        parts = tuple(matrix for both in zip(*stacks, strict=True) for matrix in both)
        return t.weight(GATE_UP, 2 * rows, columns, parts, experts=count)

    def down(self, t: Tracer, shape: BankShape) -> Weight:
        count, rows, columns = shape.experts, shape.hidden_size, shape.inner_size
        parts = tuple(_matrices(t.name(self.second), (count, rows, columns), False, None))
        return t.weight(DOWN, rows, columns, parts, experts=count)


@dataclass(frozen=True, slots=True)
class Stacks:
    """The checkpoint has one tensor for each bank: (experts, rows, columns), or (experts, columns, rows) where
    `transposed`.

    first, second: the full names of the two tensors after the layer's prefix. bias: the suffix that turns the name of a
    tensor into the name of its biases (experts, rows). paired: rows of the gate and the rows that it multiplies
    alternate. common: the full name of the bias that the second products of all experts share; empty for none.
    Satisfies `Banks`.
    """

    first: str
    second: str
    transposed: bool = False
    paired: bool = False
    bias: str = "_bias"
    common: str = ""

    def gate_up(self, t: Tracer, shape: BankShape) -> Weight:
        inner = shape.inner_size
        order = HeadRows(1, 2 * inner, 2 * inner, pairs=inner) if self.paired else None
        return self._bank(t, shape, GATE_UP, self.first, shape.first_rows, shape.hidden_size, order)

    def down(self, t: Tracer, shape: BankShape) -> Weight:
        return self._bank(t, shape, DOWN, self.second, shape.hidden_size, shape.inner_size, None)

    def _bank(
        self, t: Tracer, shape: BankShape, role: str, name: str, rows: int, columns: int, order: HeadRows | None
    ) -> Weight:
        count = shape.experts
        if t.apart:
            return self._each_expert(t, shape, role, t.name(name), rows, columns)
        common = self._common(t, shape, role)
        sizes = (count, columns, rows) if self.transposed else (count, rows, columns)
        parts = tuple(_matrices(t.name(name), sizes, self.transposed, order))
        biases = tuple(_matrices(t.name(name + self.bias), (count, rows), False, order)) if shape.biased else common
        return t.weight(role, rows, columns, parts, biases, experts=count)

    def _common(self, t: Tracer, shape: BankShape, role: str) -> tuple[Tensor, ...]:
        bias = Tensor(t.name(self.common), (shape.hidden_size,))
        return (bias,) * shape.experts if self.common and role == DOWN else ()

    def _each_expert(self, t: Tracer, shape: BankShape, role: str, name: str, rows: int, columns: int) -> Weight:
        """Returns the bank from tensors named for each expert, as quantized checkpoints have them."""
        names = ("gate_proj", "up_proj") if role == GATE_UP and shape.gated else (UP_OR_DOWN[role],)
        each, begin = rows // len(names), name.rpartition(".")[0]
        paired = self.paired and len(names) > 1
        t.stacks.append(ExpertStack(name, names, self.transposed, paired))
        modules = [f"{begin}.{expert}.{one}" for expert in range(shape.experts) for one in names]
        parts = tuple(Tensor(f"{module}.weight", (each, columns)) for module in modules)
        if not shape.biased:
            return t.weight(role, rows, columns, parts, self._common(t, shape, role), experts=shape.experts)
        t.stacks.append(ExpertStack(name + self.bias, names, paired=paired, bias=True))
        biases = tuple(Tensor(f"{module}.bias", (each,)) for module in modules)
        return t.weight(role, rows, columns, parts, biases, experts=shape.experts)


def _matrices(name: str, sizes: tuple[int, ...], transposed: bool, order: HeadRows | None) -> Iterator[Tensor]:
    for matrix in range(sizes[0]):
        yield Tensor(name, sizes, transposed, order=order, matrix=matrix)
