"""token_shift: each row mixed with the row before it in its sequence, with N sets of ratios (RWKV; Peng et al. 2023).

    out (T, N * D), x (T, D), mix (N * D,) float32, for each set n = 0 .. N - 1:
    out[t, n] = x[t] + (x[t - 1] - x[t]) * mix[n]
    The row before a sequence's first row of a step is the sequence's state (D,). The
    sequence's last row of the step becomes its new state. slots (S,): each sequence's place in `state`.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector


def reference(
    out: F32Array, x: F32Array, mix: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch
) -> None:
    width = x.shape[1]
    for s, slot in enumerate(slots):
        first, end = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        if first == end:
            continue
        before = np.concatenate((state[slot][None], x[first : end - 1]))
        for way in range(len(mix) // width):
            columns = slice(way * width, (way + 1) * width)
            out[first:end, columns] = x[first:end] + (before - x[first:end]) * mix[columns]
        state[slot] = x[end - 1]


@op
class TokenShift(Op):
    """Mixes each row with the row before it, with one or more sets of ratios; the state, a sequence's last row, is
    changed in place."""

    SHAPES = {"out": "T M", "x": "T D", "mix": "M", "slots": "S"}
    CASES = (grid(3e-6, D=(1, 15, 64, 100, 300), W=(1, 3, 5), M="W D", state="D"),)

    out: Value
    x: Value
    mix: Vector
    state: StateCache
    slots: Indices
    batch: Sequences

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 3 FLOPs for each output. The state is read and written once for each sequence."""
        return OpCost(
            per_row=Work(3 * self.out.width, activation_bytes=4 * (self.out.width + self.x.width)),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def token_shift(x: Value, mix: Vector) -> tuple[Value, ...]:
    """Records the mixing of each row of x (T, D) with the row before it, and adds a new state to the program. mix (N *
    D,): N sets of mixing ratios. Returns N values (T, D), one for each set."""
    if not mix.length or mix.length % x.width:
        raise ValueError(f"{mix.length} numbers are not ways to mix rows of {x.width}")
    out = x.fresh(mix.length)
    state = x.trace.state(x.width)
    x.trace.record(TokenShift(out, x, mix, state, STATE_SLOTS, SEQUENCES))
    return out.split(*(x.width for _ in range(mix.length // x.width)))
