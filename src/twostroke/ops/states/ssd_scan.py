"""ssd_scan: Mamba-2's selective scan, token by token within a head (Dao and Gu 2024, "Transformers are SSMs").

    out, x (T, H, P), b, c (T, G, N), dt (T, H) float32; head h reads group h // (H / G). For each token, in order:
        d = min(max(softplus(dt + dt_bias), dt_least), dt_most)
        state (N, P) = exp(d * decay) * state + b (outer) (d * x)
        out = c @ state + skip * x
    decay (negative), skip, dt_bias (H,) float32. A sequence's state is (H, N, P) float32, read and changed in place;
    slots (S,): each sequence's place in `state`.

c @ state is summed in the order of n, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, negative, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector

FLOPS_OF_A_STEP = 20
"""The FLOPs for a head's step size d and decay exp(d * decay): an addition, a softplus and an exponential."""


def reference(call: CallArrays) -> None:
    out, x, b, c, dt, decay, skip, dt_bias, state, slots, batch, dt_least, dt_most = call
    heads, width, numbers = x.shape[1], x.shape[2], b.shape[2]
    shared = heads // b.shape[1]
    steps = np.clip(np.logaddexp(0.0, dt.astype(np.float64) + dt_bias), dt_least, dt_most)
    for s, slot in enumerate(slots):
        h = state[slot].reshape(heads, numbers, width).astype(np.float64)
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            d = steps[row][:, None, None]
            inner = np.repeat(b[row], shared, axis=0)[:, :, None] * (d * x[row][:, None, :])
            h = np.exp(d * decay[:, None, None]) * h + inner
            out[row] = np.einsum("hn,hnp->hp", np.repeat(c[row], shared, axis=0), h) + skip[:, None] * x[row]
        state[slot] = h.reshape(-1)


@op
class SsdScan(Op):
    """Mamba-2's scan over the step's rows; the state is changed in place."""

    SHAPES = {
        **{"out": "T H P", "x": "T H P", "b": "T G N", "c": "T G N", "dt": "T H"},
        **{"decay": "H", "skip": "H", "dt_bias": "H", "slots": "S"},
    }
    CASES = tuple(
        grid(
            1e-5,
            G=(1, 2),
            Q=(1, 3),
            H="G Q",
            P=(1, 16, 20, 64),
            N=(1, 33),
            dt=times(2),
            decay=negative,
            state="H P N",
            dt_least=least,
            dt_most=most,
        )
        for least, most in ((0.0, np.inf), (0.1, 0.9))
    )
    PART = OpPart.ATTENTION

    out: Value
    x: Value
    b: Value
    c: Value
    dt: Value
    decay: Vector
    skip: Vector
    dt_bias: Vector
    state: StateCache
    slots: Indices
    batch: Sequences
    dt_least: float
    dt_most: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 5 FLOPs for each number of the state, and FLOPS_OF_A_STEP for each head's step size d. The state is
        read and written once for each sequence."""
        moved = 2 * self.x.width + 2 * self.b.width + self.dt.width
        return OpCost(
            per_row=Work(5 * self.state.elements + FLOPS_OF_A_STEP * self.dt.width, activation_bytes=4 * moved),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


class ScanSteps(NamedTuple):
    """The operands that make the step size of each token (Mamba's delta): dt + bias, through softplus, clamped to
    `limit` (least, largest)."""

    dt: Value
    bias: Vector
    limit: tuple[float, float]


def ssd_scan(x: Value, b: Value, c: Value, steps: ScanSteps, *, decay: Vector, skip: Vector) -> Value:
    """Records Mamba-2's scan and returns its output (T, H, P) for x (T, H, P). It adds a new state to the program.
    Raises ValueError where groups do not divide the heads."""
    dt, dt_bias, (least, most) = steps
    (heads, width), (groups, numbers) = x.shape, b.shape
    if heads % groups:
        raise ValueError(f"{groups} groups cannot be shared by {heads} heads")
    out = x.fresh()
    state = x.trace.state(heads * width * numbers)
    x.trace.record(SsdScan(out, x, b, c, dt, decay, skip, dt_bias, state, STATE_SLOTS, SEQUENCES, least, most))
    return out
