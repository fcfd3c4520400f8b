"""Kimi delta attention: the gated delta rule with a decay for each row of a head's state (Moonshot AI 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor, Value, VectorForm
from twostroke.ops.rows.activation import Activation
from twostroke.ops.states.delta_rule import DecayGate, delta_rule
from twostroke.ops.states.gated_norm import gated_norm
from twostroke.ops.states.short_conv import short_conv


@dataclass(frozen=True, slots=True)
class KimiDeltaShape:
    """head_dim: the size of a head of q, k and v, and of the latents from which decay and gate are made. taps: how many
    positions the convolutions read. direct: decay and gate are made from the rows themselves, by f_proj and g_proj.
    lowest: a bound below 0 for the logarithm of the decay (Ling 3, see ops/states/delta_rule.py); 0 for none. out: the
    name of the last product. wide_logs: A_log is stored as (1, 1, heads, 1)."""

    hidden_size: int
    heads: int
    head_dim: int
    taps: int
    eps: float
    direct: bool = False
    lowest: float = 0.0
    out: str = "o_proj"
    wide_logs: bool = True

    @property
    def inner(self) -> int:
        """The number of elements of all heads."""
        return self.heads * self.head_dim


def kimi_delta(t: Tracer, shape: KimiDeltaShape, x: Value) -> Value:
    """Returns the block's output for x (T, hidden). The names of its tensors follow the layer's prefix."""
    inner, heads, dim = shape.inner, shape.heads, shape.head_dim
    gates = {"f_proj": inner, "g_proj": inner} if shape.direct else {"f_a_proj": dim, "g_a_proj": dim}
    outputs = {**{f"{name}_proj": inner for name in "qkv"}, **gates, "b_proj": heads}
    *parts, decay, gate, strength = linear(x, t.matrix("states_in", outputs, shape.hidden_size)).split(
        *outputs.values()
    )
    q, k, v = (
        short_conv(part, conv_taps(t, f"{name}_conv1d", inner, shape.taps), None, Activation.SILU).heads(heads)
        for name, part in zip("qkv", parts, strict=True)
    )
    if not shape.direct:
        decay = linear(decay, t.matrix("states_decay", {"f_b_proj": inner}, dim))
    sizes = (1, 1, heads, 1) if shape.wide_logs else (heads,)
    rates = t.vector_of((Tensor(t.name("A_log"), sizes),), heads, form=VectorForm.NEGATED_EXP)
    left = DecayGate(decay, rates, t.vector("dt_bias", inner, suffix=""), shape.lowest)
    scanned = delta_rule(q, k, v, left, strength)
    if not shape.direct:
        gate = linear(gate, t.matrix("gate", {"g_b_proj": inner}, dim))
    weight = t.vector("o_norm", dim)
    normed = gated_norm(scanned, gate, weight, shape.eps, heads, activation=Activation.SIGMOID, gate_first=False)
    return linear(normed, t.matrix("states_out", {shape.out: shape.hidden_size}, inner))
