"""wkv6: RWKV-6's scan, token by token within a head, with the norm of its output (Peng et al. 2024).

    out, r, w, k, v (T, H, N) float32. For each token, in order, and each head with its rows of the vectors:
        made = k (outer) v                                            rows by k, columns by v
        out = layer_norm(r @ (first * made + state)) * weight + bias
        state (N, N) = exp(-exp(w)) * state + made
    first, weight, bias (H * N,) float32; the norm is of each head, over N, with eps. A sequence's state is (H, N, N)
    float32, read and changed in place; slots (S,): each sequence's place in `state`.

Products with the state are summed in the order of its rows, so bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, Indices, Sequences, StateCache, Value, Vector
from twostroke.ops.states.wkv import norm_of_heads, state_of_heads


def reference(call: CallArrays) -> None:
    out, r, w, k, v, first, weight, bias, state, slots, batch, eps = call
    heads, width = v.shape[1:]
    own, scales, shifts = (each.reshape(heads, width).astype(np.float64) for each in (first, weight, bias))
    left = np.exp(-np.exp(w.astype(np.float64)))
    for s, slot in enumerate(slots):
        h = state[slot].reshape(heads, width, width).astype(np.float64)
        for row in range(int(batch.row_starts[s]), int(batch.row_starts[s + 1])):
            made = k[row].astype(np.float64)[:, :, None] * v[row][:, None, :]
            seen = np.einsum("hk,hkv->hv", r[row], own[:, :, None] * made + h)
            h = left[row][:, :, None] * h + made
            out[row] = norm_of_heads(seen, scales, shifts, eps)
        state[slot] = h.reshape(-1)


@op
class Wkv6(Op):
    """RWKV-6's recurrence (linear attention with decay) over the step's rows of each sequence, and the norm of its
    output. The sequence's state is changed in place."""

    SHAPES = {
        **{"out": "T H N", "r": "T H N", "w": "T H N", "k": "T H N", "v": "T H N"},
        **{"first": "D", "weight": "D", "bias": "D", "slots": "S"},
    }
    CASES = (grid(2e-5, H=(1, 3), N=(1, 15, 16, 40, 64), D="H N", state="H N N", eps=1e-3),)
    PART = OpPart.ATTENTION

    out: Value
    r: Value
    w: Value
    k: Value
    v: Value
    first: Vector
    weight: Vector
    bias: Vector
    state: StateCache
    slots: Indices
    batch: Sequences
    eps: float

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 7 FLOPs for each number of the state and 20 for each number of the result. The state is read and
        written once for each sequence."""
        return OpCost(
            per_row=Work(7 * self.state.elements + 20 * self.out.width, activation_bytes=20 * self.out.width),
            per_sequence=Work(0, kv_bytes=8 * self.state.elements),
        )


@dataclass(frozen=True, slots=True)
class Wkv6Vectors:
    """The trained vectors of RWKV-6's recurrence in a layer. first: the bonus of the current token (time_faaaa).
    weight, bias: those of the norm of its output."""

    first: Vector
    weight: Vector
    bias: Vector


def wkv6(r: Value, w: Value, k: Value, v: Value, vectors: Wkv6Vectors, eps: float) -> Value:
    """Records RWKV-6's recurrence and returns its normed output (T, H, N) for v (T, H, N). It adds a new state to the
    program. Raises ValueError where heads are too large."""
    out, state = v.fresh(), state_of_heads(v)
    v.trace.record(
        Wkv6(out, r, w, k, v, vectors.first, vectors.weight, vectors.bias, state, STATE_SLOTS, SEQUENCES, eps)
    )
    return out
