"""The gated delta net block: products, a short convolution, the gated delta rule, a gated norm, one product."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, Tensor, Value, VectorForm, Weight
from twostroke.ops.rows.activation import Activation
from twostroke.ops.states.delta_rule import DecayGate, delta_rule
from twostroke.ops.states.gated_norm import gated_norm
from twostroke.ops.states.short_conv import short_conv


@dataclass(frozen=True, slots=True)
class DeltaNetShape:
    """key_dim, value_dim: the sizes of one head. taps: how many positions the convolution reads. by_key_head: q, k, v
    and gate are one tensor in the checkpoint, and the two numbers that each value head makes from a row (a, b) are
    another. Their rows are grouped by key head. Otherwise there are four tensors. gate: the function of the gate after
    the scan."""

    hidden_size: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    eps: float
    by_key_head: bool
    gate: Activation = Activation.SILU

    @property
    def keys(self) -> int:
        """The number of elements of all key heads."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """The number of elements of all value heads."""
        return self.value_heads * self.value_dim


def delta_net(t: Tracer, shape: DeltaNetShape, x: Value) -> Value:
    """Returns the block's output for x (T, hidden). The names of its tensors follow the layer's prefix."""
    keys, values, heads = shape.keys, shape.values, shape.value_heads
    channels = 2 * keys + values
    mixed, gate, b, a = linear(x, _joined(t, shape)).split(channels, values, heads, heads)
    mixed = short_conv(mixed, conv_taps(t, "conv1d", channels, shape.taps), None, Activation.SILU)
    q, k, v = mixed.split(keys, keys, values)
    decay = t.vector_of((Tensor(t.name("A_log"), (heads,)),), heads, form=VectorForm.NEGATED_EXP)
    left = DecayGate(a, decay, t.vector("dt_bias", heads, suffix=""))
    scanned = delta_rule(q.heads(shape.key_heads), k.heads(shape.key_heads), v.heads(heads), left, b)
    weight = t.vector("norm", shape.value_dim)
    normed = gated_norm(scanned, gate, weight, shape.eps, heads, activation=shape.gate, gate_first=False)
    return linear(normed, t.matrix("states_out", {"out_proj": shape.hidden_size}, values))


def _joined(t: Tracer, shape: DeltaNetShape) -> Weight:
    """Returns the matrix of q, k, v, gate, b and a."""
    hidden, keys, values, heads = shape.hidden_size, shape.keys, shape.values, shape.value_heads
    if not shape.by_key_head:
        outputs = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": heads, "in_proj_a": heads}
        return t.matrix("states_in", outputs, hidden)
    shared = heads // shape.key_heads
    several, parts = shared * shape.value_dim, []
    for name, widths in (
        ("in_proj_qkvz", (shape.key_dim, shape.key_dim, several, several)),
        ("in_proj_ba", (shared,) * 2),
    ):
        step, first = sum(widths), 0
        for width in widths:
            order = HeadRows(shape.key_heads, step, width, first)
            parts.append(Tensor(t.name(f"{name}.weight"), (shape.key_heads * step, hidden), order=order))
            first += width
    return t.weight("states_in", sum(part.length for part in parts), hidden, tuple(parts))
