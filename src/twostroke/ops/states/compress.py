"""compress: one entry of compressed KV for several tokens, by a softmax over the tokens in each channel
(DeepSeek-AI 2026).

    x (T, 2 S D) float32 = [values (S D) | gates (S D)]; bias (rate S D,): the numbers that are added to the gates of
    each place in a window of `rate` positions. S, 1 or 2, is the number of series: sets of values and gates
    of a token. Entry i of one series is, in each channel,
        sum over the tokens j of window i of softmax_j(gate_j + bias_j) * value_j
    With two series one softmax goes over the tokens of two windows: window i - 1, whose tokens give the first series
    (the first D channels), and window i, whose tokens give the second; window -1 is empty. out (T, D) float32 = the
    entry, in the row of its window's last position, (p + 1) % rate == 0; zeros in the others.

The state of a sequence has S * 3 D float32 numbers; the numbers of the entry that closes next come first. For each
channel and open entry they are the largest gate, the sum of weights relative to it, and the sum of values times
weights. Tokens are added in their order by the online softmax, so bits do not depend on how a sequence is cut into
steps.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.attention import LOG2_E
from twostroke.ops.cases import Filled, grid, times, with_sums
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector

LOWEST = np.float32(-3.0e38)
FLOPS = 16
"""The FLOPs for each channel of each series of values and gates (see the module): two exponentials, counted as 5 each,
and the sums and products of them."""


def reference(
    out: F32Array,
    x: F32Array,
    bias: F32Array,
    state: F32Array,
    slots: I32Array,
    batch: AttentionBatch,
    rate: int,
) -> None:
    dim = out.shape[1]
    series = x.shape[1] // (2 * dim)
    biases = bias.reshape(rate, series, dim)
    out[...] = 0
    for s, slot in enumerate(slots):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        held = state[slot].reshape(series, 3, dim)
        for row in range(first, last):
            position = int(batch.context_tokens[s]) - (last - row)
            if position % rate == 0:
                held[:-1] = held[1:]
                held[(0 if position == 0 else -1) :] = np.array([LOWEST, 0, 0], np.float32)[:, None]
            values, gates = x[row].reshape(2, series, dim)
            gates = (gates + biases[position % rate]) * LOG2_E
            # The last series of a token belongs to the entry that closes next.
            for entry, value, gate in zip(held, values[::-1], gates[::-1], strict=True):
                peak = np.maximum(entry[0], gate)
                kept, weight = np.exp2(np.maximum(entry[0] - peak, -126)), np.exp2(gate - peak)
                entry[...] = peak, entry[1] * kept + weight, entry[2] * kept + weight * value
            if (position + 1) % rate == 0:
                out[row] = held[0, 2] / held[0, 1]


@op
class Compress(Op):
    """Compresses the KV of `rate` tokens to one entry, in the row of the last of them. It changes the state, which
    holds the sums for unfinished entries."""

    SHAPES = {"out": "T D", "x": "T *", "bias": "*", "slots": "S"}
    CASES = (
        grid(
            3e-5,
            D=(2, 40, 300),
            Z=(1, 2),
            rate=(2, 4, 9),
            x=Filled("2 Z D", times(3)),
            bias="rate Z D",
            state=Filled("3 Z D", with_sums("D")),
        ),
    )
    PART = OpPart.ATTENTION

    out: Value
    x: Value
    bias: Vector
    state: StateCache
    slots: Indices
    batch: Sequences
    rate: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts a fixed number of FLOPs for each value and its gate. The state is read and written once for each
        sequence."""
        return OpCost(
            Work(0, weight_bytes=4 * self.bias.length),
            Work(FLOPS * self.x.width // 2, activation_bytes=4 * (self.x.width + self.out.width)),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def compress(x: Value, bias: Vector, dim: int, rate: int) -> Value:
    """Records the call, with a new state, and returns entries (T, dim): one for every `rate` tokens, in the row of the
    last of them. x (T, 2 S dim): S sets of values, then S sets of gates. S is 1, or 2 where entries overlap. Raises
    ValueError where the sizes do not fit."""
    x = x.flat()
    series = x.width // (2 * dim)
    if series not in (1, 2) or x.width != 2 * series * dim or bias.length != rate * series * dim:
        raise ValueError(f"{x.width} columns and {bias.length} biases are not entries of {dim} for {rate} positions")
    out = x.fresh(dim)
    state = x.trace.state(3 * series * dim)
    x.trace.record(Compress(out, x, bias, state, STATE_SLOTS, SEQUENCES, rate))
    return out
