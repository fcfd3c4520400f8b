"""delta_rule: the gated delta rule, token by token within a head (Yang et al. 2024, "Gated Delta Networks").

    out, v (T, H, V), q, k (T, G, K), a (T, H) or (T, H * K), b (T, H) float32; head h reads q and k of group
    h // (H / G). For each token, in order, with unit(x) = x / sqrt(sum(x^2) + 1e-6):
        left = exp(decay * softplus(a + dt_bias)), one number a head, or one for each of its K rows of the state;
               where lowest is below 0, exp(lowest * sigmoid(-decay * (a + dt_bias))) (Ling 3)
        state (K, V) = left * state
        state = state + unit(k) (outer) strength * sigmoid(b) * (v - unit(k) @ state)
        out = unit(q) / sqrt(K) @ state
    decay (H,) negative, dt_bias (H,) or (H * K,) float32. A sequence's state is (H, K, V) float32, read and changed in
    place; slots (S,): each sequence's place in `state`.

Products with the state are summed in the order of its rows, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid, negative, times
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector

UNIT_EPS = 1e-6
MOST_ROWS = 512
"""The largest number of rows of one head's state that kernels have room for."""

FLOPS_OF_A_GATE = 20
"""The FLOPs of a gate: a softplus, an exponential, a product."""


def reference(call: CallArrays) -> None:
    out, q, k, v, a, b, decay, dt_bias, state, slots, batch, strength, lowest = call
    heads, width, rows = v.shape[1], v.shape[2], k.shape[2]
    shared = heads // k.shape[1]
    units = [
        np.repeat(x / np.sqrt((x.astype(np.float64) ** 2).sum(axis=-1, keepdims=True) + UNIT_EPS), shared, axis=1)
        for x in (q, k)
    ]
    raw = (a.astype(np.float64).reshape(len(a), -1) + dt_bias).reshape(len(a), heads, -1)
    if lowest < 0:
        left = np.exp(lowest / (1.0 + np.exp(decay[:, None] * raw)))[..., None]
    else:
        left = np.exp(decay[:, None] * np.logaddexp(0.0, raw))[..., None]
    beta = strength / (1.0 + np.exp(-b.astype(np.float64)))[..., None]
    for s, slot in enumerate(slots):
        h = state[slot].reshape(heads, rows, width).astype(np.float64)
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            h = left[row] * h
            missing = beta[row] * (v[row] - np.einsum("hk,hkv->hv", units[1][row], h))
            h = h + units[1][row][:, :, None] * missing[:, None, :]
            out[row] = np.einsum("hk,hkv->hv", units[0][row] / np.sqrt(rows), h)
        state[slot] = h.reshape(-1)


@op
class DeltaRule(Op):
    """The gated delta rule over the step's rows of each sequence; the sequence's state is changed in place."""

    SHAPES = {
        **{"out": "T H V", "q": "T G K", "k": "T G K", "v": "T H V", "a": "T A", "b": "T H"},
        **{"decay": "H", "dt_bias": "A", "slots": "S"},
    }
    CASES = (
        grid(
            2e-5,
            G=(1, 2),
            Q=(1, 3),
            H="G Q",
            K=(1, 16, 33),
            V=(1, 20, 64, 72),
            A=("H", "H K"),
            a=times(2),
            decay=negative,
            state="H K V",
            strength=(1.0, 2.0),
            lowest=(0.0, -5.0),
        ),
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    k: Value
    v: Value
    a: Value
    b: Value
    decay: Vector
    dt_bias: Vector
    state: StateCache
    slots: Indices
    batch: Sequences
    strength: float
    lowest: float = 0.0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 7 FLOPs for each number of the state, and the gates. The state is read and written once for each
        sequence."""
        moved = 2 * self.v.width + 2 * self.k.width + self.a.width + self.b.width
        return OpCost(
            per_row=Work(7 * self.state.elements + FLOPS_OF_A_GATE * self.a.width, activation_bytes=4 * moved),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


class DecayGate(NamedTuple):
    """The operands that decide by which factor the state decays at a token: exp(decay * softplus(a + dt_bias)). With
    lowest below 0 the factor is exp(lowest * sigmoid(-decay * (a + dt_bias)))."""

    a: Value
    decay: Vector
    dt_bias: Vector
    lowest: float = 0.0


def delta_rule(q: Value, k: Value, v: Value, gate: DecayGate, b: Value, *, strength: float = 1.0) -> Value:
    """Records the gated delta rule and returns its output (T, H, V) for v (T, H, V). It adds a new state to the
    program. Raises ValueError where the shapes do not fit."""
    a, decay, dt_bias, lowest = gate
    (heads, width), (groups, rows) = v.shape, k.shape
    if heads % groups or a.width not in (heads, heads * rows) or rows > MOST_ROWS:
        raise ValueError(f"{heads} heads of {width}, {groups} groups of {rows}, {a.width} gates do not fit")
    out = v.fresh()
    state = v.trace.state(heads * rows * width)
    gates = a.flat(), b, decay, dt_bias
    v.trace.record(DeltaRule(out, q, k, v, *gates, state, STATE_SLOTS, SEQUENCES, strength, lowest))
    return out
