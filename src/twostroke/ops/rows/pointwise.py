"""pointwise: a short list of elementwise operations (steps) that change each element of a row, and may read the same
element of a second row.

    v = x (or the content of out, where x is left out); v = step(v) for each step in turn; out (T, D) float32 = v

A step is one byte of the integer `program`, and the first step is the lowest byte. A byte of 0 ends the steps; there
are eight at most. a and b are numbers, x and y are (T, D) float32. `numbers` is a vector. It has one number for each
column or one for all (times_numbers), one for each column (minus_numbers), two bounds (between_numbers), or four
numbers (xielu). Each step rounds to float32.

    times_a, times_b     v * a, v * b
    at_most_a            min(v, a)
    within_a             min(max(v, -a), a), a above 0
    tanh                 tanh(v)
    times_numbers        v * numbers
    minus_numbers        v - numbers
    between_numbers      min(max(v, numbers[0]), numbers[1])
    xielu                where v > 0: p v^2 + n[2] v, else: q (exp(min(v, n[3])) - 1 - v) + n[2] v
                         n = numbers, p = softplus(n[0]), q = n[2] + softplus(n[1]), n[3] below 0
    plus_y               v + y
    activations          the functions of activation.py: 16 + their number

A NaN stays NaN. out may share its memory with x, or with y if the first step reads y.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, grid, of, times, wild
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows.activation import FLOPS, Activation, activated

Wide = NDArray[np.float64]


class PointStep(enum.IntEnum):
    """The elementary operations (steps) of a `pointwise` program, with their numbers. Activations have numbers of their
    own, from FIRST_ACTIVATION on."""

    TIMES_A = 1
    TIMES_B = 2
    WITHIN_A = 3
    TANH = 4
    TIMES_NUMBERS = 5
    MINUS_NUMBERS = 6
    BETWEEN_NUMBERS = 7
    XIELU = 8
    PLUS_Y = 9


FIRST_ACTIVATION = 16
MOST_STEPS = 8
BY_COLUMN = (PointStep.TIMES_NUMBERS, PointStep.MINUS_NUMBERS)
"""The operations that read one number for each column."""
_FLOPS: Mapping[int, int] = {
    **{PointStep.WITHIN_A: 2, PointStep.BETWEEN_NUMBERS: 2},
    **{PointStep.TANH: 18, PointStep.XIELU: FLOPS},
}
"""The FLOPs of one element for each operation that has more than one FLOP."""


def program_of(*steps: int) -> int:
    """Returns operations as the op's integer `program`, one byte each. Raises ValueError for no operation, and for more
    than the op takes."""
    if not 0 < len(steps) <= MOST_STEPS:
        raise ValueError(f"{len(steps)} steps, there must be 1 to {MOST_STEPS}")
    return sum(step << 8 * place for place, step in enumerate(steps))


def activation_step(activation: int) -> int:
    """Returns the number of the operation that applies an activation."""
    return FIRST_ACTIVATION + activation


def steps_of(program: int) -> Iterator[int]:
    """Yields the operations of an integer `program` in order: its bytes, from the lowest on."""
    while program:
        yield program & 255
        program >>= 8


class _Operands(Struct, frozen=True):
    """What the steps of a `pointwise` call read in addition to the element that they change. a, b: two constants. y: a
    second value of the same shape, of which a step reads the same element. numbers: a vector, such as one number for
    each column."""

    a: float
    b: float
    y: F32Array
    numbers: F32Array


def _xielu(v: Wide, numbers: F32Array) -> Wide:
    rise, fall = np.logaddexp(0.0, numbers[:2].astype(np.float64))
    line, least = (float(number) for number in numbers[2:])
    below: Wide = (line + fall) * (np.expm1(np.minimum(v, least)) - v) + line * v
    return np.where(v > 0, rise * v * v + line * v, below)


_TAKEN: Mapping[int, Callable[[Wide, _Operands], Wide]] = {
    PointStep.TIMES_A: lambda v, has: v * has.a,
    PointStep.TIMES_B: lambda v, has: v * has.b,
    PointStep.WITHIN_A: lambda v, has: np.clip(v, -has.a, has.a),
    PointStep.TANH: lambda v, has: np.tanh(v),
    PointStep.TIMES_NUMBERS: lambda v, has: v * has.numbers,
    PointStep.MINUS_NUMBERS: lambda v, has: v - has.numbers,
    PointStep.BETWEEN_NUMBERS: lambda v, has: np.minimum(np.maximum(v, has.numbers[0]), has.numbers[1]),
    PointStep.XIELU: lambda v, has: _xielu(v, has.numbers),
    PointStep.PLUS_Y: lambda v, has: v + has.y,
}


def reference(
    out: F32Array,
    program: int,
    x: F32Array | None = None,
    y: F32Array | None = None,
    numbers: F32Array | None = None,
    a: float = 0.0,
    b: float = 0.0,
) -> None:
    """Applies the elementwise steps whose codes are the bytes of `program`, one after the other, to x (or to `out`,
    where x is None). y, numbers, a, b: what the steps read besides. Unlike the kernels, it rounds to float32 only once,
    at the end."""
    none = np.empty(0, np.float32)
    first, second = float(np.float32(a)), float(np.float32(b))
    has = _Operands(first, second, none if y is None else y, none if numbers is None else numbers)
    wide: Wide = (out if x is None else x).astype(np.float64)
    with np.errstate(over="ignore"):
        for step in steps_of(program):
            taken = _TAKEN.get(step)
            wide = activated(wide, step - FIRST_ACTIVATION) if taken is None else taken(wide, has)
        out[...] = wide


_ALONE: dict[str, Any] = {"x": None, "y": None, "numbers": None}
_ACTIVATIONS = tuple(program_of(activation_step(each)) for each in Activation)
_CAP = program_of(PointStep.TIMES_A, PointStep.TANH, PointStep.TIMES_B)
_BY_NUMBERS, _LESS_NUMBERS = program_of(PointStep.TIMES_NUMBERS), program_of(PointStep.MINUS_NUMBERS)
_XIELU = program_of(PointStep.XIELU)
_BOUNDS = tuple(Filled("2", of(*each)) for each in ((-0.5, 0.25), (0, 0), (-np.inf, 0.5), (-np.inf, np.inf)))
_SLOPES = Filled("4", of(0.3, -0.7, 0.5, -1e-6))
_LONG = program_of(PointStep.TIMES_A, PointStep.PLUS_Y, PointStep.WITHIN_A, PointStep.TIMES_NUMBERS, PointStep.TIMES_B)


@op
class Pointwise(Op):
    """Applies up to eight elementary operations, which `program` encodes, to each element of `x`, or of `out` in
    place."""

    SHAPES = {"out": "T D", "x": "T D", "y": "T D", "numbers": "*"}
    CASES = (
        grid(2e-6, T=(0, 5), D=(1, 15, 33), out=times(4), program=_ACTIVATIONS, **_ALONE),
        grid(T=(0, 1, 5), D=(1, 15, 200, 9000), program=program_of(PointStep.TIMES_A), a=0.3, **_ALONE),
        grid(T=(0, 1, 6), D=(1, 15, 33, 200), out=wild, program=program_of(PointStep.WITHIN_A), a=0.3, **_ALONE),
        grid(T=(0, 1, 19), D=(1, 15, 16, 33, 200), program=program_of(PointStep.PLUS_Y), x=None, numbers=None),
        *(
            grid(1e-6, T=(0, 1, 5), D=(1, 15, 200), out=times(20), program=_CAP, a=1 / cap, b=cap, **_ALONE)
            for cap in (0.5, 30.0, 1e6)
        ),
        grid(T=(0, 1, 5), D=(1, 15, 200), program=_BY_NUMBERS, x=None, y=None, numbers=("1", "D")),
        grid(T=(0, 1, 19), D=(1, 15, 200), program=_LESS_NUMBERS, x=None, y=None, numbers="D"),
        grid(
            T=(0, 1, 6), D=(1, 15, 200), x=wild, program=program_of(PointStep.BETWEEN_NUMBERS), y=None, numbers=_BOUNDS
        ),
        grid(5e-6, T=(0, 1, 5), D=(1, 15, 33, 200), out=times(3), program=_XIELU, x=None, y=None, numbers=_SLOPES),
        grid(1e-6, T=(1, 3), D=(15, 1100, 70000), x=(None, times(2)), program=_LONG, numbers="D", a=0.7, b=-2.0),
    )
    BY_HEADS = True
    COLUMN_VECTOR = "numbers"

    out: Value
    program: int
    x: Value | None = None
    y: Value | None = None
    numbers: Vector | None = None
    a: float = 0.0
    b: float = 0.0

    @property
    def reads_columns(self) -> bool:
        """Whether one of the steps multiplies by or subtracts the operand `numbers`, which may have one number for each
        column."""
        return any(step in BY_COLUMN for step in steps_of(self.program))

    @property
    def column_numbers(self) -> Vector | None:
        """The operand `numbers` where it has one number for each column of the result; None where it has the two bounds
        of a clamp or the four numbers of xIELU. See Op."""
        vector = self.numbers if self.reads_columns else None
        return vector if vector is not None and vector.length == self.out.width else None

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts each operation's FLOPs for each element, with a read and a write, and a read of the second row where
        there is one."""
        width = self.out.width
        flops = sum(FLOPS if step >= FIRST_ACTIVATION else _FLOPS.get(step, 1) for step in steps_of(self.program))
        weights = self.numbers.length if self.numbers is not None and self.reads_columns else 0
        moved = 8 if self.y is None else 12
        return OpCost(Work(0, weight_bytes=4 * weights), Work(flops * width, activation_bytes=moved * width))


def is_made_by(call: Op, *steps: int) -> bool:
    """Returns whether a call is a `pointwise` with exactly these operations."""
    return isinstance(call, Pointwise) and call.program == program_of(*steps)
