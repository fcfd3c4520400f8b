"""wkv7: RWKV-7's scan, token by token within a head, with the norm of its output (Peng et al. 2025).

    out, r, w, k, v, a (T, H, N) float32. For each token, in order, and each head with its rows of the vectors:
        left = exp(-exp(-1/2) * sigmoid(w)), rate = sigmoid(a)
        unit = k * removal / max(|k * removal|, 1e-12)
        key = k * (1 + (rate - 1) * growth)
        state (N, N) = left * state + (rate * unit) (outer) (-unit @ state) + key (outer) v    rows by k, columns by v
        out = layer_norm(r @ state) * weight + bias + sum(r * key * bonus) * v
    removal, growth, bonus (k_k, k_a and r_k in checkpoints), weight, bias (H * N,) float32; the norm is of each head,
    over N, with eps. A sequence's state is (H, N, N) float32, read and changed in place; slots (S,): each sequence's
    place in `state`.

Products with the state are summed in the order of its rows, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector
from twostroke.ops.states.wkv import norm_of_heads, state_of_heads

DECAY = -0.6065306597126334
"""The factor of the decay: -exp(-1/2)."""
LEAST_LENGTH = 1e-12


def reference(call: CallArrays) -> None:
    out, r, w, k, v, a, removal, growth, bonus, weight, bias, state, slots, batch, eps = call
    heads, width = v.shape[1:]
    removed, grown, shares, scales, shifts = (
        each.reshape(heads, width).astype(np.float64) for each in (removal, growth, bonus, weight, bias)
    )
    left = np.exp(DECAY * _sigmoid(w))
    rate = _sigmoid(a)
    unit = k * removed
    unit = unit / np.maximum(np.sqrt((unit**2).sum(axis=-1, keepdims=True)), LEAST_LENGTH)
    key = k * (1 + (rate - 1) * grown)
    for s, slot in enumerate(slots):
        h = state[slot].reshape(heads, width, width).astype(np.float64)
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            seen = -np.einsum("hk,hkv->hv", unit[row], h)
            h = left[row][:, :, None] * h + (rate * unit)[row][:, :, None] * seen[:, None, :]
            h = h + key[row][:, :, None] * v[row][:, None, :]
            made = np.einsum("hk,hkv->hv", r[row], h)
            normed = norm_of_heads(made, scales, shifts, eps)
            out[row] = normed + (r[row] * key[row] * shares).sum(axis=-1, keepdims=True) * v[row]
        state[slot] = h.reshape(-1)


def _sigmoid(x: F32Array) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x.astype(np.float64)))


@op
class Wkv7(Op):
    """RWKV-7's recurrence over the step's rows of each sequence, and the norm of its output. The sequence's state is
    changed in place."""

    SHAPES = {
        **{"out": "T H N", "r": "T H N", "w": "T H N", "k": "T H N", "v": "T H N", "a": "T H N"},
        **{"removal": "D", "growth": "D", "bonus": "D", "weight": "D", "bias": "D", "slots": "S"},
    }
    CASES = (grid(2e-5, H=(1, 3), N=(1, 15, 16, 40, 64), D="H N", state="H N N", eps=1e-3),)
    PART = OpPart.ATTENTION

    out: Value
    r: Value
    w: Value
    k: Value
    v: Value
    a: Value
    removal: Vector
    growth: Vector
    bonus: Vector
    weight: Vector
    bias: Vector
    state: StateCache
    slots: Indices
    batch: Sequences
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 9 FLOPs for each number of the state and 40 for each number of the result. The state is read and
        written once for each sequence."""
        return OpCost(
            per_row=Work(9 * self.state.elements + 40 * self.out.width, activation_bytes=24 * self.out.width),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


@dataclass(frozen=True, slots=True)
class Wkv7Vectors:
    """The trained vectors of RWKV-7's recurrence in a layer: k_k (removal), k_a (growth) and r_k (bonus) of the
    checkpoint, and the weight and bias of the norm of its output."""

    removal: Vector
    growth: Vector
    bonus: Vector
    weight: Vector
    bias: Vector


def wkv7(r: Value, w: Value, k: Value, v: Value, a: Value, vectors: Wkv7Vectors, eps: float) -> Value:
    """Records RWKV-7's recurrence and returns its output (T, H, N) for v (T, H, N). It adds a new state to the program.
    Raises ValueError where heads are too large."""
    out, state = v.fresh(), state_of_heads(v)
    trained = (vectors.removal, vectors.growth, vectors.bonus, vectors.weight, vectors.bias)
    v.trace.record(Wkv7(out, r, w, k, v, a, *trained, state, STATE_SLOTS, SEQUENCES, eps))
    return out
