"""multiply: each element times a function of a gate (the gates of attention, of states and of convolutions).

    out (T, D) float32 = x * act(gate), x (T, D), gate (T, G) float32; act by its number in activation.py. D is a
    multiple of G. Number g of `gate` belongs to the D / G elements of x from g * D / G on, for example one number for
    each head.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value
from twostroke.ops.rows.activation import FLOPS, Activation, activated


def reference(out: F32Array, x: F32Array, gate: F32Array, activation: int) -> None:
    rows = len(x)
    flat = gate.reshape(rows, -1)
    factors = np.repeat(activated(flat, activation), x[:1].size // flat[:1].size if rows else 1, axis=1)
    out[...] = (x * factors.reshape(x.shape)).astype(np.float32)


@op
class Multiply(Op):
    """x * act(gate), element by element; a number of `gate` may belong to several neighbouring elements, such as those
    of a head."""

    SHAPES = {"out": "T D", "x": "T D", "gate": "T *"}
    CASES = (
        grid(
            3e-6,
            T=(0, 9),
            G=(1, 4),
            W=(1, 15, 64),
            D="G W",
            gate=(Filled("D", times(3)), Filled("G", times(3))),
            activation=(Activation.IDENTITY, Activation.SIGMOID, Activation.SILU),
        ),
    )

    out: Value
    x: Value
    gate: Value
    activation: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts an activation for each number of `gate`, and for each element of x a multiplication, a read and a
        write. The read of `gate` is counted too."""
        width, gates = self.out.width, self.gate.width
        return OpCost(per_row=Work(width + FLOPS * gates, activation_bytes=8 * width + 4 * gates))


def multiply(x: Value, gate: Value, activation: Activation = Activation.IDENTITY) -> Value:
    """Records x (T, D) times act(gate). Raises ValueError where the gate's width does not divide x's."""
    x, gate = x.flat(), gate.flat()
    if x.width % gate.width:
        raise ValueError(f"{gate.width} gates cannot be shared by {x.width} elements")
    out = x.fresh()
    x.trace.record(Multiply(out, x, gate, int(activation)))
    return out
