"""The norm of a family: its kind, and what its tensors hold.

Knows: the ops of norms.
Must not know: config fields, where norms stand.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from twostroke.ops.rows.head_norm import head_norm
from twostroke.ops.rows.layer_norm import layer_norm
from twostroke.ops.rows.rms_norm import rms_norm
from twostroke.program.trace import Tracer
from twostroke.program.values import HeadRows, Value


class NormKind(enum.Enum):
    """RMS: without a mean and a bias (Zhang and Sennrich 2019). LAYER: with both (Ba et al. 2016). PLAIN_LAYER: without
    a bias. UNIT: RMS without weights. UNIT_LAYER: layer norm without weights and bias."""

    RMS = enum.auto()
    LAYER = enum.auto()
    PLAIN_LAYER = enum.auto()
    UNIT = enum.auto()
    UNIT_LAYER = enum.auto()


@dataclass(frozen=True, slots=True)
class Norm:
    """plus: what is added to the stored weights (1 where they are stored as w - 1)."""

    eps: float
    kind: NormKind = NormKind.RMS
    plus: float = 0.0

    def __call__(self, t: Tracer, name: str, x: Value, *, in_place: bool = False) -> Value:
        """The norm of each row. in_place: over x itself, which must not be read afterwards."""
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
        """The norm of each head of x (T, H, D), over x, with one weight for all heads. order: of that weight."""
        if self.kind is NormKind.UNIT:
            return head_norm(x, t.constant("ones", (1.0,) * x.shape[1]), self.eps)
        if self.kind is not NormKind.RMS:
            raise ValueError("heads have RMS norms")
        return head_norm(x, t.vector(name, x.shape[1], plus=self.plus, order=order), self.eps)
