"""gate: the gate of a gated feed-forward block (Shazeer 2020).

    out (T, F) float32 = act(gate) * (up + shift), [gate | up] = x (T, 2 F) float32; act by its number in
                         activation.py. Where limit is above 0, up is limited to [-limit, limit], and gate is
                         limited to at most limit before act is taken (gpt-oss). Where hold_values is not 0,
                         act(gate) is limited to at most limit in place of gate (Step 3.5).

out may lie over the first half of x.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value
from twostroke.ops.rows.activation import FLOPS, Activation, activated

__all__ = ["Activation", "GateProduct", "gate", "reference"]


def reference(
    out: F32Array, x: F32Array, activation: int, limit: float = 0.0, shift: float = 0.0, hold_values: int = 0
) -> None:
    half = x.shape[1] // 2
    gates, ups = x[:, :half], x[:, half:]
    most = np.float32(limit if limit > 0 else np.inf)
    before, after = (np.float32(np.inf), most) if hold_values else (most, np.float32(np.inf))
    with np.errstate(over="ignore"):
        values = np.minimum(activated(np.minimum(gates, before), activation), after)
        out[...] = (values * (np.clip(ups, -most, most) + np.float32(shift))).astype(np.float32)


@op
class GateProduct(Op):
    """The gated product act(gate) * (up + shift) of a feed-forward block. `limit` clamps up, and gate before or after
    act."""

    SHAPES = {"out": "T F", "x": "T 2F"}
    CASES = (
        grid(2e-6, T=(0, 5), F=(1, 15, 33), x=times(4), activation=tuple(Activation)),
        grid(
            1e-5,
            T=5,
            F=(1, 33),
            x=times(4),
            activation=(Activation.SILU, Activation.QUICK_GELU),
            limit=(0.0, 1.5),
            shift=(0.0, 1.0),
            hold_values=(0, 1),
        ),
    )
    BY_HEADS = True

    out: Value
    x: Value
    activation: int
    limit: float = 0.0
    shift: float = 0.0
    hold_values: int = 0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the activation and a multiplication for each output element, with two reads and a write."""
        width = self.out.width
        return OpCost(per_row=Work(FLOPS * width, activation_bytes=12 * width))


def gate(
    x: Value, activation: Activation, limit: float = 0.0, shift: float = 0.0, *, hold_values: bool = False
) -> Value:
    """Records act(gate) * (up + shift) of rows [gate | up]. limit: up is clamped to [-limit, limit] and gate to at most
    limit; 0 for no clamp. hold_values: act(gate) is clamped in place of gate."""
    out = x.fresh(x.width // 2)
    x.trace.record(GateProduct(out, x, int(activation), limit, shift, int(hold_values)))
    return out
