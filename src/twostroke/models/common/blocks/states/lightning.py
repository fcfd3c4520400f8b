"""Lightning attention: each head keeps a decayed sum of outer products of its keys and values (Qin et al. 2024).

A head's state is exp(-slope) * state + k (outer) v, and its output is q @ state. This is Mamba-2's scan with steps of 1
and without its skip connection (D). The decay follows from the numbers of the head and the layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, Value
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.ssd_scan import ScanSteps, ssd_scan
from twostroke.types.spec.portable import powers

NORM = Norm(1e-6)
"""The norm of the heads' outputs. MiniMax-Text-01 uses this eps here, whatever eps its config gives for the other
norms."""
SMALL = 1e-5
"""Keeps the factor of the last layer's slopes above 0 (see LightningShape.slopes), and avoids a division by 0 in a
model of one layer."""
LARGEST = 8.0
"""In the first layer, the slopes of the heads fall geometrically, and the last head's slope is 2 to the power of
-LARGEST."""
ALWAYS = 1.0, 1.0
"""The bounds of dt, the scan's step size. They are equal, so dt is always 1."""


@dataclass(frozen=True, slots=True)
class LightningShape:
    """layers: the number of layers in the whole model, on which the decay depends."""

    hidden_size: int
    heads: int
    head_dim: int
    layers: int

    @property
    def inner(self) -> int:
        """The number of elements of all heads."""
        return self.heads * self.head_dim

    def slopes(self, index: int) -> tuple[float, ...]:
        """Returns how much the logarithm of each head's state falls with each position, in layer `index`."""
        depth = 1.0 - index / (self.layers - 1 + SMALL) + SMALL
        steps = (-LARGEST * (head + 1) / self.heads for head in range(self.heads))
        return tuple(slope * depth for slope in powers(2.0, steps))


def lightning(t: Tracer, shape: LightningShape, index: int, h: Value) -> Value:
    """Returns the output of layer `index` for the normed rows h, before it is added to the residual."""
    inner, step = shape.inner, 3 * shape.head_dim
    orders = [HeadRows(shape.heads, step, shape.head_dim, place * shape.head_dim) for place in range(3)]
    rows = shape.heads * step
    made = linear(h, t.selected("states_in", "self_attn.qkv_proj", rows, shape.hidden_size, orders))
    q, k, v = activate(made, Activation.SILU).split(inner, inner, inner)
    zeros = t.constant("zeros", (0.0,) * shape.heads)
    steps = ScanSteps(q.columns(0, shape.heads), zeros, ALWAYS)  # any values would do: the bounds allow one step size
    seen = ssd_scan(
        v.heads(shape.heads),
        k.heads(shape.heads),
        q.heads(shape.heads),
        steps,
        decay=t.constant("decay", tuple(-slope for slope in shape.slopes(index))),
        skip=zeros,
    )
    seen = NORM(t, "self_attn.norm", seen)
    gate = linear(h, t.matrix("gate", {"self_attn.output_gate": inner}, shape.hidden_size))
    gated = multiply(seen, gate, Activation.SIGMOID)
    return linear(gated, t.matrix("states_out", {"self_attn.out_proj": shape.hidden_size}, inner))
