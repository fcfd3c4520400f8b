"""The feed-forward blocks that dense families share, gated and plain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.gate import gate

FeedForwardText = Callable[[Tracer, Value, Value], Value]
"""block(trace, residual, normed) returns the residual with the feed-forward block's output added."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The block down(act(gate(h)) * up(h)), or down(act(up(h))) where `gate` is empty. Names have no ".weight".

    gate_up: the name of one tensor that has all rows of gate and then those of up; `gate` and `up` are then not used.
    inner_norm: `mlp.ffn_sub_norm`, before the last product (BitNet). down_bias: only the last product has a bias.
    """

    hidden_size: int
    inner_size: int
    activation: Activation = Activation.SILU
    bias: bool = False
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    gate_up: str = ""
    inner_norm: Norm | None = None
    down_bias: bool = False

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h, before it is added to the residual."""
        inner = self.inner_size
        if self.gate_up or self.gate:
            outputs = {self.gate_up: 2 * inner} if self.gate_up else {self.gate: inner, self.up: inner}
            both = t.matrix("gate_up", outputs, self.hidden_size, bias=self.bias)
            middle = gate(linear(h, both), self.activation)
        else:
            up = t.matrix("up", {self.up: inner}, self.hidden_size, bias=self.bias)
            middle = activate(linear(h, up), self.activation)
        if self.inner_norm:
            middle = self.inner_norm(t, "mlp.ffn_sub_norm", middle, in_place=True)
        biased = self.bias or self.down_bias
        return linear(middle, t.matrix("down", {self.down: self.hidden_size}, inner, bias=biased))
