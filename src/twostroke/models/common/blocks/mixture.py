"""The feed-forward block of several experts, of which a router chooses some for each token (Shazeer et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.banks import Banks, BankShape
from twostroke.models.common.blocks.feed import Feed, FeedForwardText
from twostroke.ops.products.experts import SWIGLU, ExpertRule, experts
from twostroke.ops.products.linear import linear
from twostroke.ops.products.route import RouteRule, route
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Tensor, Value
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, scale, soft_cap
from twostroke.ops.rows.gate import gate
from twostroke.ops.rows.multiply import multiply

MOST_EXPERTS = 1024
"""The largest number of experts that the ops allow."""

Router = Callable[[Tracer, Value], Value]
"""router(trace, normed) returns, for each row, the weights of its chosen experts and then their numbers."""


@dataclass(frozen=True, slots=True)
class LinearRouter:
    """A router: a product gives scores, and a rule chooses experts by them. name: the name of the product's tensor.
    bias: the product has a bias. choice_bias: the full name, after the layer's prefix, of the tensor that is added to
    the scores only for the choice; empty for none. choice_shape: the shape of that tensor where it has more than one
    axis. transposed: the product's tensor holds (columns, rows). soft_cap: the soft cap of the product's outputs, 0 for
    none."""

    name: str
    experts: int
    rule: RouteRule
    bias: bool = False
    choice_bias: str = ""
    choice_shape: tuple[int, ...] = ()
    transposed: bool = False
    soft_cap: float = 0.0

    def __call__(self, t: Tracer, h: Value) -> Value:
        outputs = {self.name: self.experts}
        product = linear(h, t.matrix("router", outputs, h.width, bias=self.bias, transposed=self.transposed))
        logits = soft_cap(product, self.soft_cap)
        if not self.choice_bias:
            return route(logits, self.rule)
        shape = self.choice_shape or (self.experts,)
        # When there are several rows, the first row is used: the other rows belong to the experts for images.
        added = Tensor(t.name(self.choice_bias), shape, matrix=0 if len(shape) > 1 and shape[0] > 1 else None)
        return route(logits, self.rule, t.vector_of((added,), self.experts))


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared experts of a layer: a feed-forward block that every row goes through. gate: the name of a product with
    one output, whose sigmoid multiplies the block's output; empty for none."""

    feed: Feed
    gate: str = ""

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the output of the shared experts for the normed rows h, multiplied by the gate if there is one."""
        made = self.feed(t, h)
        if not self.gate:
            return made
        share = linear(h, t.matrix("router", {self.gate: 1}, h.width))
        return multiply(made, share, Activation.SIGMOID)


@dataclass(frozen=True, slots=True)
class ClampedFeed:
    """A gated feed-forward block whose gate and up projection are clamped. name: the beginning of the names of its
    tensors."""

    hidden_size: int
    inner_size: int
    rule: ExpertRule
    name: str

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the output of this feed-forward block for the normed rows h, before it is added to the residual."""
        inner, width, rule = self.inner_size, self.hidden_size, self.rule
        both = t.matrix("gate_up", {f"{self.name}.gate_proj": inner, f"{self.name}.up_proj": inner}, width)
        middle = gate(linear(h, both), rule.activation, rule.limit, rule.shift, hold_values=rule.hold_values)
        return linear(middle, t.matrix("down", {f"{self.name}.down_proj": width}, inner))


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of experts. shared: the block that every row goes through in addition to its experts; None for none."""

    shape: BankShape
    router: Router
    banks: Banks
    rule: ExpertRule = SWIGLU
    shared: Shared | None = None

    def chosen(self, t: Tracer, h: Value) -> Value:
        """Returns the weighted sum of the chosen experts' outputs."""
        return self.of_routes(t, h, self.router(t, h))

    def of_routes(self, t: Tracer, h: Value, routes: Value) -> Value:
        """Returns the weighted sum of experts' outputs for rows h. routes: weights and numbers of the experts, which a
        router made from other rows."""
        return experts(h, routes, self.banks.gate_up(t, self.shape), self.banks.down(t, self.shape), self.rule)

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the output of experts and shared block for the normed rows h, before it is added to the residual."""
        made = self.chosen(t, h)
        return add(made, self.shared(t, h)) if self.shared else made


def mixture(block: Mixture, factor: float = 1.0) -> FeedForwardText:
    """Returns a function that adds the outputs of the experts, and of the shared block, to the residual. factor: the
    number by which these outputs are multiplied before they are added."""

    def added(t: Tracer, residual: Value, h: Value) -> Value:
        x = add(residual, scale(block.chosen(t, h), factor))
        return add(x, scale(block.shared(t, h), factor)) if block.shared else x

    return added
