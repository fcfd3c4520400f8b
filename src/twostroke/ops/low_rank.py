"""low_rank: what adapters add to a product (LoRA, Hu et al. 2021).

    out (T, N) float32 = product (T, N) + up_e @ (down_e @ x), e = adapters[row], x (T, D) float32.

adapters (T,) int32, each an adapter's number, or -1: such a row is `product` as it is. down is a bank of E matrices of
(R, D), up one of E matrices of (N, R); factors are part of `up`. Both products are those of ops/linear.py, rounded;
then one addition for each element. One row's result depends on that row alone, whichever adapters its neighbours have.

middle (T, R) is room: what it holds afterwards is not said.

Knows: the contract, the reference, the cost. Must not know: implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops import linear
from twostroke.ops.operands import F32Array, I32Array, PackedWeight
from twostroke.program.op import Op, OpCost, OpPart, Shapes, StoredFormats
from twostroke.program.values import Indices, Value, Weight


def reference(
    out: F32Array,
    product: F32Array,
    x: F32Array,
    down: PackedWeight,
    up: PackedWeight,
    adapters: I32Array,
    middle: F32Array,
) -> None:
    """See the module. Raises IndexError for the number of no adapter."""
    if adapters.size and (int(adapters.min()) < -1 or int(adapters.max()) >= down.experts):
        raise IndexError(f"adapter outside [-1, {down.experts})")
    out[...] = product
    for adapter in (int(each) for each in np.unique(adapters) if each >= 0):
        rows = np.flatnonzero(adapters == adapter)
        first, second = np.empty((len(rows), middle.shape[1]), np.float32), np.empty((len(rows), up.rows), np.float32)
        linear.reference(first, x[rows], down.expert(adapter))
        linear.reference(second, first, up.expert(adapter))
        out[rows] += second


@dataclass(frozen=True, eq=False, slots=True)
class LowRank(Op):
    """A product with what each row's adapter adds. No model asks for it: program/adapters.py adds it."""

    NAME: ClassVar[str] = "low_rank"
    SHAPES: ClassVar[Shapes] = {
        "out": "T N",
        "product": "T N",
        "x": "T D",
        "down": "* D",
        "up": "* R",
        "adapters": "T",
        "middle": "T R",
    }
    PART: ClassVar[OpPart] = OpPart.PRODUCT
    SCRATCH: ClassVar[tuple[str, ...]] = ("middle",)
    reference = staticmethod(reference)

    out: Value
    product: Value
    x: Value
    down: Weight
    up: Weight
    adapters: Indices
    middle: Value

    @property
    def experts_of_a_row(self) -> int:
        """See Op: one adapter at the most."""
        return 1

    def cost(self, formats: StoredFormats) -> OpCost:
        """As if every row had an adapter: both products, an addition, the product read and the sum written."""
        rank, width = self.down.rows, self.out.width
        flops = 2 * rank * (self.down.columns + width) + width
        return OpCost(per_row=Work(flops, activation_bytes=4 * (self.x.width + 2 * rank + 3 * width)))


def low_rank(out: Value, product: Value, x: Value, down: Weight, up: Weight, adapters: Indices) -> LowRank:
    """The call that makes `out` of `product`. Raises ValueError where the banks do not fit each other."""
    fits = down.experts == up.experts > 0 and down.rows == up.columns and up.rows == out.width
    if not fits or down.columns != x.width:
        raise ValueError(f"banks of {down.experts} and {up.experts} matrices do not make adapters of this product")
    return LowRank(out, product, x.flat(), down, up, adapters, x.fresh(down.rows))
