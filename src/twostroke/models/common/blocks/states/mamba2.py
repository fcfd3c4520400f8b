"""The Mamba-2 block: one product, a short convolution, a scan with a state of fixed size, a gated norm, one product.

The block is a whole layer of Mamba-2, and the layers with states of several hybrids (Dao and Gu 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor, Value, Vector, VectorForm, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import scale
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.gated_norm import gated_norm
from twostroke.ops.states.short_conv import short_conv
from twostroke.ops.states.ssd_scan import ScanSteps, ssd_scan
from twostroke.types.spec.fields import Fields


@dataclass(frozen=True, slots=True)
class Mamba2Shape:
    """numbers: the size of the state of each element of a head. groups: the number of groups of heads; the heads of a
    group share B and C. taps: how many positions the convolution reads.

    norm_groups: the groups of the norm after the scan; 0 for a gate without a norm. gate_first: the gate comes before
    the norm. step_limit: the bounds of dt. factors: the first product makes the gate, the values, B, C and dt, in this
    order, and each of these five is multiplied by its factor.
    """

    hidden_size: int
    heads: int
    head_dim: int
    numbers: int
    groups: int
    taps: int
    eps: float
    norm_groups: int
    step_limit: tuple[float, float] = (0.0, math.inf)
    conv_bias: bool = True
    in_bias: bool = False
    out_bias: bool = False
    gate_first: bool = True
    factors: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0)

    @property
    def inner(self) -> int:
        """The number of elements of all heads."""
        return self.heads * self.head_dim


def mamba2_block(t: Tracer, shape: Mamba2Shape, x: Value) -> Value:
    """Returns the block's output for x (T, hidden). The names of its tensors follow the layer's prefix."""
    inner, shared = shape.inner, shape.groups * shape.numbers
    channels = inner + 2 * shared
    outputs = {"in_proj": inner + channels + shape.heads}
    projected = linear(x, t.matrix("states_in", outputs, shape.hidden_size, bias=shape.in_bias))
    gate, mixed, dt = projected.split(inner, channels, shape.heads)
    if set(shape.factors) != {1.0}:
        parts = (gate, *mixed.split(inner, shared, shared), dt)
        gate, *scaled, dt = (scale(part, factor) for part, factor in zip(parts, shape.factors, strict=True))
        mixed = join(*scaled)
    bias = t.vector("conv1d", channels, suffix=".bias") if shape.conv_bias else None
    mixed = short_conv(mixed, conv_taps(t, "conv1d", channels, shape.taps), bias, Activation.SILU)
    values, b, c = mixed.split(inner, shared, shared)
    steps = ScanSteps(dt, t.vector("dt_bias", shape.heads, suffix=""), shape.step_limit)
    scanned = ssd_scan(
        values.heads(shape.heads),
        b.heads(shape.groups),
        c.heads(shape.groups),
        steps,
        decay=t.vector_of((Tensor(t.name("A_log"), (shape.heads,)),), shape.heads, form=VectorForm.NEGATED_EXP),
        skip=t.vector("D", shape.heads, suffix=""),
    )
    if shape.norm_groups:
        weight = t.vector("norm", inner)
        gated = gated_norm(scanned, gate, weight, shape.eps, shape.norm_groups, gate_first=shape.gate_first)
    else:
        gated = multiply(scanned, gate, Activation.SILU)
    return linear(gated, t.matrix("states_out", {"out_proj": shape.hidden_size}, inner, bias=shape.out_bias))


def conv_taps(t: Tracer, name: str, channels: int, taps: int) -> Vector:
    """Returns the taps of a convolution that reads each channel by itself, stored as (channels, 1, taps)."""
    return t.vector_of((Tensor(t.name(f"{name}.weight"), (channels, 1, taps), True),), taps * channels)


def read_mamba2(fields: Fields, hidden_size: int, eps: float, silent: int = 256) -> Mamba2Shape:
    """Reads the block's shape from the fields (mamba_n_heads and others) that several models of Mamba-2 and attention
    layers have. silent: the value of mamba_d_state where the config has no such field."""
    heads = fields.integer("mamba_n_heads", 1, 1 << 16, default=128)
    inner = fields.optional_integer("mamba_d_ssm", 1, 1 << 20)
    if inner is None:
        inner = int(fields.number("mamba_expand", 0.01, 64.0, default=2.0) * hidden_size)
    named = None if fields.value("mamba_d_head") == "auto" else fields.optional_integer("mamba_d_head", 1, 4096)
    groups = fields.integer("mamba_n_groups", 1, 4096, default=1)
    if inner % heads or (named or inner // heads) * heads != inner:
        raise fields.wrong("mamba_n_heads", f"The heads together have {inner} elements.")
    if heads % groups:
        raise fields.wrong("mamba_n_groups", f"It must divide the {heads} heads.")
    biased = fields.boolean("mamba_proj_bias", False)
    return Mamba2Shape(
        hidden_size=hidden_size,
        heads=heads,
        head_dim=inner // heads,
        numbers=fields.integer("mamba_d_state", 1, 4096, default=silent),
        groups=groups,
        taps=fields.integer("mamba_d_conv", 2, 64, default=4),
        eps=eps,
        norm_groups=groups,
        step_limit=step_limit(fields),
        conv_bias=fields.boolean("mamba_conv_bias", True),
        in_bias=biased,
        out_bias=biased,
    )


def step_limit(fields: Fields, name: str = "time_step_limit") -> tuple[float, float]:
    """Reads the bounds of dt: 0 and infinity where the config does not have the field. An infinite upper bound may also
    be written as {"__float__": "Infinity"}."""
    found = fields.value(name)
    if found is None:
        return 0.0, math.inf
    if isinstance(found, list | tuple) and len(found) == 2:
        low, high = (math.inf if each in ({"__float__": "Infinity"}, math.inf) else each for each in found)
        if not any(isinstance(each, bool) or not isinstance(each, int | float) for each in (low, high)):
            if 0.0 <= low < math.inf and low <= high:
                return float(low), float(high)
    raise fields.wrong(name, "It must be two numbers from 0 on, the smaller one first; the second may be Infinity.")
