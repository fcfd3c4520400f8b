"""rg_lru: the real-gated linear recurrent unit of Griffin (De et al. 2024), channel by channel.

    out, x, input_gate, recurrent_gate (T, C) float32. For each token of a sequence, in order:
        log_a = -8 * sigmoid(recurrent_gate) * softplus(rates)
        state (C,) = exp(log_a) * state + sqrt(1 - exp(2 * log_a)) * (x * sigmoid(input_gate))
        out = state
    rates (C,). At position 0 the state begins: it is x * sigmoid(input_gate). A sequence's state is (C,) float32, read
    and changed in place; slots (S,): each sequence's place in `state`. Positions follow from the batch.

Each channel is computed by itself, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector
from twostroke.ops.rows.activation import Activation, activated

FLOPS_OF_A_CHANNEL = 26
"""The FLOPs of a channel: four exponentials and a square root (counted as 5 each), and one multiply-add."""
RATE = -8.0
"""The factor of the exponent: minus c of the paper."""


def reference(call: CallArrays) -> None:
    out, x, input_gate, recurrent_gate, rates, state, slots, batch = call
    log_a = RATE * activated(recurrent_gate, Activation.SIGMOID) * np.logaddexp(0.0, rates.astype(np.float64))
    kept, added = np.exp(log_a), np.sqrt(-np.expm1(2.0 * log_a))
    inputs = x * activated(input_gate, Activation.SIGMOID)
    for s, slot in enumerate(slots):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        h = state[slot].astype(np.float64)
        for row in range(first, last):
            begins = int(batch.context_tokens[s]) == last - row
            h = inputs[row] if begins else kept[row] * h + added[row] * inputs[row]
            out[row] = h
        state[slot] = h


@op
class RgLru(Op):
    """Griffin's gated linear recurrence over the step's rows of each sequence; the sequence's state is changed in
    place."""

    SHAPES = {
        **{"out": "T C", "x": "T C", "input_gate": "T C", "recurrent_gate": "T C"},
        **{"rates": "C", "slots": "S"},
    }
    CASES = (
        grid(3e-6, C=(1, 16, 40, 150, 300), input_gate=times(2), recurrent_gate=times(2), state="C"),
    )
    PART = OpPart.ATTENTION

    out: Value
    x: Value
    input_gate: Value
    recurrent_gate: Value
    rates: Vector
    state: StateCache
    slots: Indices
    batch: Sequences

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 26 FLOPs for each channel. The state is read and written once for each sequence."""
        width = self.x.width
        return OpCost(
            Work(0, weight_bytes=4 * self.rates.length),
            Work(FLOPS_OF_A_CHANNEL * width, activation_bytes=16 * width),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def rg_lru(x: Value, input_gate: Value, recurrent_gate: Value, rates: Vector) -> Value:
    """Records Griffin's recurrence and returns its output (T, C) for x (T, C). It adds a new state to the program."""
    x = x.flat()
    out = x.fresh()
    state = x.trace.state(x.width)
    gates = (input_gate.flat(), recurrent_gate.flat())
    x.trace.record(RgLru(out, x, *gates, rates, state, STATE_SLOTS, SEQUENCES))
    return out
