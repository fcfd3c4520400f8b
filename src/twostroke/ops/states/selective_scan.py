"""selective_scan: Mamba's scan, token by token within a channel (Gu and Dao 2023).

    out, x, dt (T, C), b, c (T, N) float32. For each token, in order:
        d = softplus(dt)
        state (N, C) = exp(d * decay) * state + b (outer) (d * x)
        out = c @ state + skip * x
    decay (N * C,) float32, negative: C numbers for n = 0, then C for n = 1, and so on; skip (C,). A
    sequence's state is (N, C) float32, read and changed in place; slots (S,): each sequence's place in `state`.

c @ state is summed in the order of n, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, grid, negative, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector

FLOPS_OF_A_NUMBER = 11
"""The FLOPs of a number of the state: an exponential (counted as 5), two products for it and for the input, and two
multiply-adds."""


def reference(call: CallArrays) -> None:
    out, x, dt, b, c, decay, skip, state, slots, batch = call
    numbers, channels = b.shape[1], x.shape[1]
    steps = np.logaddexp(0.0, dt.astype(np.float64))
    by_number = decay.reshape(numbers, channels)
    for s, slot in enumerate(slots):
        h = state[slot].reshape(numbers, channels).astype(np.float64)
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            h = np.exp(steps[row] * by_number) * h + b[row][:, None] * (steps[row] * x[row])
            out[row] = c[row] @ h + skip * x[row]
        state[slot] = h.reshape(-1)


@op
class SelectiveScan(Op):
    """Mamba's scan over the step's rows; the state is changed in place."""

    SHAPES = {
        **{"out": "T C", "x": "T C", "dt": "T C", "b": "T N", "c": "T N"},
        **{"decay": "*", "skip": "C", "slots": "S"},
    }
    CASES = (
        grid(
            1e-5, C=(1, 16, 40, 150), N=(1, 5, 16, 70), dt=times(2), decay=Filled("N C", negative), state="N C"
        ),
    )
    PART = OpPart.ATTENTION

    out: Value
    x: Value
    dt: Value
    b: Value
    c: Value
    decay: Vector
    skip: Vector
    state: StateCache
    slots: Indices
    batch: Sequences

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 11 FLOPs for each number of the state. The state is read and written once for each sequence."""
        moved = 3 * self.x.width + 2 * self.b.width
        return OpCost(
            Work(0, weight_bytes=4 * self.decay.length),
            Work(FLOPS_OF_A_NUMBER * self.state.elements, activation_bytes=4 * moved),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def selective_scan(x: Value, dt: Value, b: Value, c: Value, *, decay: Vector, skip: Vector) -> Value:
    """Records the scan of x (T, C) and adds a new state to the program. Raises ValueError where decay does not fit."""
    if decay.length != x.width * b.width:
        raise ValueError(f"{decay.length} decays are not {b.width} for each of {x.width} channels")
    out = x.fresh()
    state = x.trace.state(decay.length)
    x.trace.record(SelectiveScan(out, x, dt, b, c, decay, skip, state, STATE_SLOTS, SEQUENCES))
    return out
