"""low_rank: the sum of a product and the result of each row's adapter (LoRA, Hu et al. 2021).

    out (T, N) float32 = product (T, N), and columns [first, first + rows of up) += up_e @ (down_e.T @ x),
    e = adapters[row], x (T, D) float32.

adapters (T,) int32, each an adapter's number, or -1 for a row that is `product` unchanged. down is a bank of E matrices
of (D, R), up one of E matrices of (rows, R). Both are f32, bf16 or int8 with a scale for each column (COLUMNS8). The
adapter's scaling, such as alpha / rank, is already part of `up`. ranks (E,) float32, whole numbers: columns of an
adapter's matrices from its rank on are zeros up to the next multiple of 8, and later columns are not read. R is a
multiple of 8. Sums are float32 in a fixed order; x is not rounded. One row's result depends on that row alone, and not
on the adapters of other rows. out may be product's memory.

middle (T, R) is scratch memory; its content afterwards is undefined.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.cost.work import Work
from twostroke.ops.cases import between, grid, of
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Indices, Value, Vector, Weight
from twostroke.ops.unpack import unpack
from twostroke.types.spec.formats import BF16, COLUMNS8, F32

RANK_STEP = 8
"""The ranks of banks are multiples of this number."""


def reference(call: CallArrays) -> None:
    """Computes the op in NumPy, as the module defines it. Raises IndexError for a number that belongs to no adapter, or
    for a rank that banks have no room for."""
    out, product, x, down, up, ranks, adapters, middle, first = call
    if adapters.size and (int(adapters.min()) < -1 or int(adapters.max()) >= down.experts):
        raise IndexError(f"adapter outside [-1, {down.experts})")
    if ranks.min() < 0 or ranks.max() > middle.shape[1]:
        raise IndexError(f"rank outside [0, {middle.shape[1]}]")
    out[...] = product
    for adapter in (int(each) for each in np.unique(adapters) if each >= 0):
        rows, rank = np.flatnonzero(adapters == adapter), int(ranks[adapter])
        middles = x[rows] @ unpack(down.expert(adapter))[:, :rank]
        out[rows, first : first + up.rows] += middles @ unpack(up.expert(adapter))[:, :rank].T


class LowRankBanks(Struct, frozen=True, eq=False, kw_only=True):
    """The LoRA matrices of all adapters for one tensor of a product. down: a bank of (columns, ranks) matrices. up: a
    bank of (rows, ranks) matrices, already multiplied by the adapter's scaling (alpha / rank).

    first_row: the first of the tensor's rows in the product. ranks: for each adapter, how many of the bank's columns it
    uses.
    """

    first_row: int
    down: Weight
    up: Weight
    ranks: Vector


@op
class LowRank(Op):
    """A product, with the result of each row's adapter added. No model file calls it: ops/passes/with_adapters.py adds
    it."""

    SHAPES = {
        "out": "T N",
        "product": "T N",
        "x": "T D",
        "down": "* R",
        "up": "* R",
        "ranks": "E",
        "adapters": "T",
        "middle": "T R",
    }
    CASES = (
        grid(
            1e-5,
            T=44,
            D=(1, 64),
            U=(1, 96),
            N=101,
            E=4,
            R=16,
            bank="E",
            down="D",
            up="U",
            formats=(F32, BF16, COLUMNS8),
            biased=False,
            ranks=of(8, 16, 16, 0),
            adapters=between(-1, 3),
            first=3,
        ),
    )
    PART = OpPart.PRODUCT
    SCRATCH = ("middle",)

    out: Value
    product: Value
    x: Value
    down: Weight
    up: Weight
    ranks: Vector
    adapters: Indices
    middle: Value
    first: int

    @property
    def experts_of_a_row(self) -> int:
        """The number of adapters that a row uses, at the most: 1. See Op."""
        return 1

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts every row as if it had an adapter of full rank, and every sequence as if it had an adapter of its
        own."""
        rank, columns, rows = self.down.columns, self.down.rows, self.up.rows
        flops = 2 * rank * (columns + rows) + rows
        matrices = sum(formats.weight_bytes(each) // each.matrices for each in (self.down, self.up))
        return OpCost(
            per_row=Work(flops, activation_bytes=4 * (columns + 2 * rank + 2 * rows)),
            per_sequence=Work(0, weight_bytes=matrices),
        )


def low_rank(out: Value, product: Value, x: Value, banks: LowRankBanks, adapters: Indices) -> LowRank:
    """Returns the call that makes `out` from `product`. Raises ValueError where the banks do not fit each other."""
    down, up, ranks, first = banks.down, banks.up, banks.ranks, banks.first_row
    fits = down.experts == up.experts == ranks.length > 0 and down.columns == up.columns
    if not fits or down.columns % RANK_STEP or down.rows != x.width or first + up.rows > out.width:
        raise ValueError(f"banks of {down.experts} and {up.experts} matrices do not make adapters of this product")
    return LowRank(out, product, x.flat(), down, up, ranks, adapters, x.fresh(down.columns), first)
