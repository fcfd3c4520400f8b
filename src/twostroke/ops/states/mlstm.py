"""mlstm: the scan of xLSTM's matrix memory, token by token within a head (Beck et al. 2024).

    q, k (T, H, K), v, out (T, H, V), input_gate, forget_gate (T, H) float32. For each token of a sequence, in order,
    with the state (C (K, V), n (K,), m) of a head, f = log(sigmoid(forget_gate)) and i = input_gate:
        m' = max(f + m, i);       a, b = exp(f + m - m'), exp(i - m')
        C, n, m = a * C + b * k (x) v, a * n + b * k, m'
        out = C.T q s / (max(|n . q s|, exp(-m)) + eps),       s = K ** -0.5
    A sequence's state is (H * K * V | H * K | H) float32, zeros in a new sequence, read and changed in place; slots
    (S,): each sequence's place in `state`.

Sums run over K in order, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value

MOST_ROWS = 4096
"""The largest size of a head of q and k (K) that kernels have room for."""


def reference(call: CallArrays) -> None:
    out, q, k, v, input_gate, forget_gate, state, slots, batch, eps = call
    heads, rows, width = q.shape[1], q.shape[2], v.shape[2]
    logs = -np.logaddexp(0.0, -forget_gate.astype(np.float64))
    for s, slot in enumerate(slots):
        parts = np.split(state[slot].astype(np.float64), (heads * rows * width, heads * rows * (width + 1)))
        c, n, m = parts[0].reshape(heads, rows, width), parts[1].reshape(heads, rows), parts[2]
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            largest = np.maximum(logs[row] + m, input_gate[row])
            kept, added = np.exp(logs[row] + m - largest), np.exp(input_gate[row] - largest)
            c = kept[:, None, None] * c + added[:, None, None] * k[row][:, :, None] * v[row][:, None, :]
            n, m = kept[:, None] * n + added[:, None] * k[row], largest
            asked = q[row].astype(np.float64) * rows**-0.5
            below = np.maximum(np.abs((n * asked).sum(axis=1)), np.exp(-m)) + eps
            out[row] = np.einsum("hkv,hk->hv", c, asked) / below[:, None]
        state[slot] = np.concatenate((c.reshape(-1), n.reshape(-1), m))


@op
class Mlstm(Op):
    """xLSTM's matrix memory over the step's rows; the state is changed in place."""

    SHAPES = {
        **{"out": "T H V", "q": "T H K", "k": "T H K", "v": "T H V"},
        **{"input_gate": "T H", "forget_gate": "T H", "slots": "S"},
    }
    CASES = tuple(
        grid(
            3e-5,
            H=heads,
            K=rows,
            V=width,
            input_gate=times(3),
            forget_gate=times(3),
            state=heads * (rows * width + rows + 1),
            eps=1e-6,
        )
        for heads, rows, width in ((1, 1, 1), (3, 20, 33), (2, 64, 16), (1, 64, 130))
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    k: Value
    v: Value
    input_gate: Value
    forget_gate: Value
    state: StateCache
    slots: Indices
    batch: Sequences
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 6 FLOPs for each number of the state. The state is read and written once for each sequence."""
        moved = 2 * (self.q.width + self.v.width + self.input_gate.width)
        return OpCost(
            per_row=Work(6 * self.state.elements, activation_bytes=4 * moved),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def mlstm(q: Value, k: Value, v: Value, input_gate: Value, forget_gate: Value, eps: float) -> Value:
    """Records the scan and returns the result of each row, (T, H, V). Adds a new state to the program. Raises
    ValueError where heads are too large."""
    heads, rows = q.shape
    if rows > MOST_ROWS:
        raise ValueError(f"keys have {rows} numbers, there is room for {MOST_ROWS}")
    out = v.fresh()
    state = v.trace.state(heads * (rows * v.shape[1] + rows + 1))
    v.trace.record(Mlstm(out, q, k, v, input_gate, forget_gate, state, STATE_SLOTS, SEQUENCES, eps))
    return out
