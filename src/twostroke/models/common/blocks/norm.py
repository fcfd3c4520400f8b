"""The norm of a family: its kind, and how the checkpoint stores its weights."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, Tensor, Value
from twostroke.ops.rows.head_layer_norm import head_layer_norm
from twostroke.ops.rows.head_norm import head_norm
from twostroke.ops.rows.layer_norm import layer_norm
from twostroke.ops.rows.rms_norm import rms_norm


class NormKind(enum.Enum):
    """The kinds of norms. RMS: no mean is subtracted, no bias (Zhang and Sennrich 2019). LAYER: with mean and bias (Ba
    et al. 2016). PLAIN_LAYER: LAYER without a bias. UNIT: RMS without weights. UNIT_LAYER: LAYER without weights and
    bias."""

    RMS = enum.auto()
    LAYER = enum.auto()
    PLAIN_LAYER = enum.auto()
    UNIT = enum.auto()
    UNIT_LAYER = enum.auto()


class HeadWeights(enum.Enum):
    """How the checkpoint stores the weights of norms that are applied to each head. SHARED: one vector for all heads.
    ROWS: a row of one tensor for each head. APART: a tensor for each head, NAME.norms.NUMBER."""

    SHARED = enum.auto()
    ROWS = enum.auto()
    APART = enum.auto()


@dataclass(frozen=True, slots=True)
class Norm:
    """The norms of a model. plus: the number that is added to the stored weights (1 where they are stored as w - 1).
    heads: how the weights of per-head norms are stored, for norms of the kind PLAIN_LAYER (layer norms without biases).
    Norms of other kinds have one vector for all heads, or no weights."""

    eps: float
    kind: NormKind = NormKind.RMS
    plus: float = 0.0
    heads: HeadWeights = HeadWeights.SHARED

    def __call__(self, t: Tracer, name: str, x: Value, *, in_place: bool = False) -> Value:
        """Returns the norm of each row. in_place: the result overwrites x, which must not be read afterwards."""
        if self.kind is NormKind.UNIT:
            ones = t.constant("ones", (1.0,) * x.width)
            return rms_norm(x.flat(), ones, self.eps, in_place=in_place)
        if self.kind is NormKind.UNIT_LAYER:
            return layer_norm(x.flat(), t.constant("ones", (1.0,) * x.width), None, self.eps, in_place=in_place)
        weight = t.vector(name, x.width, plus=self.plus)
        if self.kind is NormKind.RMS:
            return rms_norm(x.flat(), weight, self.eps, in_place=in_place)
        bias = t.vector(name, x.width, suffix=".bias") if self.kind is NormKind.LAYER else None
        return layer_norm(x.flat(), weight, bias, self.eps, in_place=in_place)

    def of_heads(self, t: Tracer, name: str, x: Value, order: HeadRows | None = None) -> Value:
        """Returns the norm of each head of x (T, H, D), written over x. order: the order of the weights of one head."""
        heads, dim = x.shape
        if self.kind is NormKind.UNIT:
            return head_norm(x, t.constant("ones", (1.0,) * dim), self.eps)
        if self.heads is not HeadWeights.SHARED and self.kind is NormKind.PLAIN_LAYER:
            weights = t.vector_of(self._tensors(t, name, heads, dim, order), heads * dim, plus=self.plus)
            return head_layer_norm(x, weights, None, self.eps)
        weight = t.vector(name, dim, plus=self.plus, order=order)
        if self.kind is NormKind.RMS:
            return head_norm(x, weight, self.eps)
        if self.kind is not NormKind.LAYER:
            raise ValueError(f"heads have no norms of the kind {self.kind.name}")
        return head_layer_norm(x, weight, t.vector(name, dim, suffix=".bias", order=order), self.eps)

    def _tensors(self, t: Tracer, name: str, heads: int, dim: int, order: HeadRows | None) -> tuple[Tensor, ...]:
        if self.heads is HeadWeights.ROWS:
            full = t.name(f"{name}.weight")
            return tuple(Tensor(full, (heads, dim), order=order, matrix=head) for head in range(heads))
        return tuple(Tensor(t.name(f"{name}.norms.{head}.weight"), (dim,), order=order) for head in range(heads))
