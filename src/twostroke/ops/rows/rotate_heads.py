"""rotate_heads: each head's vector times Hadamard matrices, so that its numbers have about the same size.

    x (T, H, D), out (T, H, D) float32. The first 256 dimensions of a head are multiplied by the Hadamard matrix of that
    order, and so are the next ones. The rest is divided in blocks of 128, 64 .. 1, the largest that fit first. Where
    inverse is 1, each block is divided by its order too: a call without it and then one with it give x back.
    ops/rotation.py has the arithmetic and the order of the additions.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import grid
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import Op, OpCost, StoredFormats, op
from twostroke.ops.program.values import Value
from twostroke.ops.rotation import times_hadamard

LARGEST_BLOCK = 256


def blocks_of(dim: int) -> list[tuple[int, int]]:
    """Returns for each block of a head of `dim` dimensions its first dimension and its size. A Hadamard matrix of this
    size multiplies the block."""
    found, first = [], 0
    while first < dim:
        order = min(LARGEST_BLOCK, 1 << ((dim - first).bit_length() - 1))
        found.append((first, order))
        first += order
    return found


def reference(out: F32Array, x: F32Array, inverse: int) -> None:
    for first, order in blocks_of(x.shape[-1]):
        block = times_hadamard(x[..., first : first + order])
        out[..., first : first + order] = block * np.float32(1 / order) if inverse else block


@op
class RotateHeads(Op):
    """Each head's vector times Hadamard matrices, which spread each number over its block."""

    SHAPES = {"out": "T H D", "x": "T H D"}
    CASES = (grid(T=(1, 5), H=(1, 3), D=(1, 7, 24, 64, 80, 128, 320), inverse=(0, 1)),)
    BY_HEADS = True

    out: Value
    x: Value
    inverse: int

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts log2(order of the largest block) additions for each element. Each element is read once and written
        once."""
        width, dim = self.out.width, self.out.shape[-1]
        return OpCost(per_row=Work(width * (min(dim, LARGEST_BLOCK).bit_length() - 1), activation_bytes=8 * width))
