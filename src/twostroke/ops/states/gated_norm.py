"""gated_norm: the norm after a scan, with a gate (Dao and Gu 2024; Yang et al. 2024).

    x, gate, out (T, D) float32 in `groups` groups of D / groups elements. rms(v) = v / sqrt(mean(v^2) + eps), the mean
    of each group by itself. gate_first 1: out = rms(x * act(gate)) * weight; 0: out = rms(x) * weight * act(gate).
    weight (D,), or (D / groups,) for a weight that all groups share; act by its number in ops/rows/activation.py.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value, Vector
from twostroke.ops.rows.activation import FLOPS, Activation, activated


def reference(call: CallArrays) -> None:
    out, x, gate, weight, eps, groups, activation, gate_first = call
    rows = len(x)
    shape = (rows, groups, x[:1].size // groups if rows else 1)
    factors = activated(gate.reshape(rows, -1), activation).reshape(shape)
    values = x.reshape(shape).astype(np.float64)
    if gate_first:
        values = values * factors
    values = values / np.sqrt(np.mean(values**2, axis=-1, keepdims=True) + eps)
    values = values * (weight.reshape(groups, -1) if len(weight) == groups * shape[2] else weight)
    if not gate_first:
        values = values * factors
    out[...] = values.reshape(out.shape).astype(np.float32)


@op
class GatedNorm(Op):
    """The RMS norm of each group of columns by itself, and the product with act(gate), before or after the norm."""

    SHAPES = {"out": "T D", "x": "T D", "gate": "T D", "weight": "*"}
    CASES = (
        grid(
            1e-5,
            T=(1, 19),
            groups=(1, 3),
            W=(1, 15, 32, 70),
            D="groups W",
            gate=times(3),
            weight=("D", "W"),
            eps=1e-5,
            activation=(Activation.SILU, Activation.SIGMOID),
            gate_first=(0, 1),
        ),
    )

    out: Value
    x: Value
    gate: Value
    weight: Vector
    eps: float
    groups: int
    activation: int
    gate_first: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a norm, an activation and a product for each element, with two reads and a write."""
        width = self.out.width
        return OpCost(
            Work(0, weight_bytes=4 * self.weight.length), Work((5 + FLOPS) * width, activation_bytes=12 * width)
        )


def gated_norm(
    x: Value,
    gate: Value,
    weight: Vector,
    eps: float,
    groups: int,
    *,
    activation: Activation = Activation.SILU,
    gate_first: bool,
) -> Value:
    """Records the RMS norm of each of `groups` groups of columns of x, times `weight` and act(gate). gate_first:
    whether act(gate) multiplies before the norm. Raises ValueError where the groups or the weight do not fit."""
    x, gate = x.flat(), gate.flat()
    if groups < 1 or x.width % groups or weight.length not in (x.width, x.width // groups):
        raise ValueError(f"{groups} groups, a weight of {weight.length}: they do not fit rows of {x.width} elements")
    out = x.fresh()
    x.trace.record(GatedNorm(out, x, gate, weight, eps, groups, int(activation), int(gate_first)))
    return out
