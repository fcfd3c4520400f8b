"""The Mamba block: a product, a short convolution, a scan whose steps, B and C depend on the token, a gate.

The block is a whole layer of Mamba, and the layers with states of Jamba (Gu and Dao 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor, Value, VectorForm
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.selective_scan import selective_scan
from twostroke.ops.states.short_conv import short_conv

StepNorm = Callable[[Tracer, str, Value], Value]
"""norm(trace, name, x) returns the norm of x, which may be overwritten. x is one of the scan's inputs: the low-rank dt,
B or C."""


@dataclass(frozen=True, slots=True)
class MambaShape:
    """The sizes of a Mamba block. inner: the number of channels. numbers: the size of each channel's state. rank: the
    size of the low-rank vector from which dt is made.

    norm: the norm of this vector, of B and of C, whose tensors are called dt_layernorm, b_layernorm and c_layernorm;
    None for none.
    """

    hidden_size: int
    inner: int
    numbers: int
    rank: int
    taps: int
    conv_bias: bool = True
    bias: bool = False
    norm: StepNorm | None = None


def mamba_block(t: Tracer, shape: MambaShape, x: Value) -> Value:
    """Returns the block's output for x (T, hidden). The names of its tensors follow the layer's prefix."""
    inner, numbers, rank = shape.inner, shape.numbers, shape.rank
    into = t.matrix("states_in", {"in_proj": 2 * inner}, shape.hidden_size, bias=shape.bias)
    values, gate = linear(x, into).split(inner, inner)
    bias = t.vector("conv1d", inner, suffix=".bias") if shape.conv_bias else None
    values = short_conv(values, conv_taps(t, "conv1d", inner, shape.taps), bias, Activation.SILU)
    found = linear(values, t.matrix("states_steps", {"x_proj": rank + 2 * numbers}, inner))
    few, b, c = found.split(rank, numbers, numbers)
    if shape.norm is not None:
        few, b, c = (
            shape.norm(t, name, each) for name, each in (("dt_layernorm", few), ("b_layernorm", b), ("c_layernorm", c))
        )
    scanned = selective_scan(
        values,
        linear(few, t.matrix("states_steps", {"dt_proj": inner}, rank, bias=True)),
        b,
        c,
        decay=t.vector_of(
            (Tensor(t.name("A_log"), (inner, numbers), True),), inner * numbers, form=VectorForm.NEGATED_EXP
        ),
        skip=t.vector("D", inner, suffix=""),
    )
    out = t.matrix("states_out", {"out_proj": shape.hidden_size}, inner, bias=shape.bias)
    return linear(multiply(scanned, gate, Activation.SILU), out)
