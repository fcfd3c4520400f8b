"""short_conv: a causal convolution of few taps over the tokens of each sequence, each channel by itself.

    out, x (T, C) float32. out[t] = act(bias + sum over j < w of taps[j] * x[t - w + 1 + j]), by channel, where x before
    the step's first token of a sequence comes from its state. taps (w * C,) float32, the oldest token's C first; bias
    (C,) or None; act by its number in ops/rows/activation.py. The state holds the last w - 1 inputs, the oldest first:
    (w - 1) * C float32; it is read and replaced in place. slots (S,): each sequence's place in `state`.

Each sum adds the taps in their order and nothing else, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector
from twostroke.ops.rows.activation import FLOPS, Activation, activated


def reference(call: CallArrays) -> None:
    out, x, taps, bias, state, slots, batch, activation = call
    channels = x.shape[1]
    by_tap = taps.reshape(-1, channels).astype(np.float64)
    width = len(by_tap)
    for s, slot in enumerate(slots):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        seen = np.concatenate((state[slot].reshape(width - 1, channels), x[first:last]))
        for row in range(first, last):
            at = row - first
            total = (by_tap * seen[at : at + width]).sum(axis=0) + (0.0 if bias is None else bias)
            out[row] = activated(total[None].astype(np.float32), activation)[0]
        state[slot] = seen[len(seen) - (width - 1) :].reshape(-1)


@op
class ShortConv(Op):
    """The convolution of the step's rows; the state is changed."""

    SHAPES = {"out": "T C", "x": "T C", "taps": "*", "bias": "C", "slots": "S"}
    CASES = tuple(
        grid(
            3e-6,
            C=(1, 15, 48, 300),
            taps=f"{taps} C",
            bias=(None, times(1)),
            state=f"{taps - 1} C",
            activation=(Activation.SILU, Activation.IDENTITY),
        )
        for taps in (2, 3, 4, 7)
    )
    PART = OpPart.ATTENTION

    out: Value
    x: Value
    taps: Vector
    bias: Vector | None
    state: StateCache
    slots: Indices
    batch: Sequences
    activation: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each tap and channel, and the activation. The state is read and written once for each
        sequence."""
        width = self.out.width
        return OpCost(
            Work(0, weight_bytes=4 * self.taps.length),
            Work(2 * self.taps.length + FLOPS * width, activation_bytes=8 * width),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


def short_conv(
    x: Value, taps: Vector, bias: Vector | None = None, activation: Activation = Activation.IDENTITY
) -> Value:
    """Records the convolution of x (T, C), with a new state. Raises ValueError where the taps do not fit."""
    x = x.flat()
    if taps.length % x.width or taps.length < 2 * x.width:
        raise ValueError(f"{taps.length} taps are not two or more for each of {x.width} channels")
    out = x.fresh()
    state = x.trace.state(taps.length - x.width)
    x.trace.record(ShortConv(out, x, taps, bias, state, STATE_SLOTS, SEQUENCES, int(activation)))
    return out
