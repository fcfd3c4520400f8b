"""wkv4: RWKV-4's scan, token by token, channel by channel (Peng et al. 2023).

    out, k, v (T, C) float32; first, decay (C,), decay <= 0. For each token of a sequence, in order, with the state
    (num, den, most) of a channel:
        m = max(most, k + first);       a, b = exp(most - m), exp(k + first - m)
        out = (a * num + b * v) / (a * den + b)
        m = max(most + decay, k);       a, b = exp(most + decay - m), exp(k - m)
        num, den, most = a * num + b * v, a * den + b, m
    At position 0 the state begins: (0, 0, -1e38). A sequence's state is (3, C) float32, read and changed in place;
    slots (S,): each sequence's place in `state`. Positions follow from the batch.

Each channel is computed by itself, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import Filled, grid, negative, times, with_sums
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector

FLOPS_OF_A_CHANNEL = 40
"""The FLOPs of a channel: four exponentials and a quotient (counted as 5 each), two maxima, and the sums and products
between them."""
PARTS = 3
"""How many numbers the state of a channel has."""
LEAST = -1e38
"""The value that the running maximum of exponents has before the first token (instead of -inf)."""


def reference(call: CallArrays) -> None:
    out, k, v, first, decay, state, slots, batch = call
    keys, values = k.astype(np.float64), v.astype(np.float64)
    for s, slot in enumerate(slots):
        begin, end = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        held = state[slot].reshape(PARTS, -1).astype(np.float64)
        for row in range(begin, end):
            if int(batch.context_tokens[s]) == end - row:
                held = np.stack((np.zeros(len(first)), np.zeros(len(first)), np.full(len(first), LEAST)))
            num, den = _joined(held, keys[row] + first, values[row], 0.0)[:2]
            out[row] = num / den
            held = _joined(held, keys[row], values[row], decay)
        state[slot] = held.reshape(-1)


def _joined(held: np.ndarray, key: np.ndarray, value: np.ndarray, decay: np.ndarray | float) -> np.ndarray:
    """Returns the state (3, C) after its decay, with one more token added."""
    num, den, most = held[0], held[1], held[2] + decay
    largest = np.maximum(most, key)
    kept, added = np.exp(most - largest), np.exp(key - largest)
    return np.stack((kept * num + added * value, kept * den + added, largest))


@op
class Wkv4(Op):
    """RWKV-4's recurrence (its attention without queries) over the step's rows of each sequence; the sequence's state
    is changed in place."""

    SHAPES = {"out": "T C", "k": "T C", "v": "T C", "first": "C", "decay": "C", "slots": "S"}
    CASES = (
        grid(3e-5, C=(1, 16, 40, 150, 300), k=times(3), decay=negative, state=Filled("3 C", with_sums("C"))),
    )
    PART = OpPart.ATTENTION

    out: Value
    k: Value
    v: Value
    first: Vector
    decay: Vector
    state: StateCache
    slots: Indices
    batch: Sequences

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 40 FLOPs for each channel. The state is read and written once for each sequence."""
        width = self.k.width
        return OpCost(
            Work(0, weight_bytes=8 * width),
            Work(FLOPS_OF_A_CHANNEL * width, activation_bytes=12 * width),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def wkv4(k: Value, v: Value, first: Vector, decay: Vector) -> Value:
    """Records the scan of k and v (T, C) and returns the result of each row, with a new state."""
    k, v = k.flat(), v.flat()
    out = k.fresh()
    state = k.trace.state(PARTS * k.width)
    k.trace.record(Wkv4(out, k, v, first, decay, state, STATE_SLOTS, SEQUENCES))
    return out
