"""linear: the matrix product of a batch of rows with a packed weight.

    out (T, rows) float32 = x (T, columns) float32 @ W.T + bias.

Float weights: float32 arithmetic in a fixed order over k. Integer weights: x is rotated where the weight's columns are
rotated (ops/rotation.py). Each group of `activation_columns` numbers of x is rounded to int8 (`quantize_rows`),
products are summed exactly in int32, and each group is folded into a float32 sum, in the order of the groups: sum =
fma(float(integer), x_scale * w_scale, sum), bias added last. ops/stored_layout.py has the packed kinds that keep a
file's codes.

positions (T,) int32, or None. With integer weights, a row at a position below FIRST_POSITIONS is rounded twice (ADR
68). The error of its int8 codes, x - q * scale in float32, is rounded to int8 codes too. The product of the second
codes is added to the sum before the bias. One row's result depends on that row and its position alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.cost.work import Work
from twostroke.ops.cases import CODES, between, grid
from twostroke.ops.operands import F32Array, I32Array, PackedWeight, unpack_integers
from twostroke.ops.program.op import Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Indices, Value, Weight
from twostroke.ops.rotation import rotated_columns
from twostroke.ops.stored_layout import stored_product
from twostroke.ops.unpack import unpack

FIRST_POSITIONS = 6
"""How many positions at the beginning of a text are rounded more precisely: what the int8 code of such a row loses is
rounded to a second int8 code. It is kFirstPositions of first_positions.h."""


def quantize_rows(x: F32Array, group: int, padded_columns: int) -> tuple[NDArray[np.int8], F32Array]:
    """Rounds x (T, columns) to q (T, padded_columns) int8 and scales (T, groups) float32. The last group may be
    shorter.

    Per row and group: amax = max |x|; scale = amax / 127; q = round half to even of x * (127 / amax), all in float32. A
    group of zeros has scale 0 and q 0. q is 0 as well where amax is below 2^-120 (127 / amax would overflow) or is not
    finite. Then the scale carries the NaN or infinity into the result of the row.
    """
    full = np.zeros((x.shape[0], -(-padded_columns // group) * group), np.float32)
    full[:, : x.shape[1]] = x
    groups = full.reshape(x.shape[0], -1, group)
    amax = np.max(np.abs(groups), axis=-1)
    usable = (amax >= np.float32(2.0**-120)) & (amax < np.inf)
    inverse = np.divide(np.float32(127), amax, out=np.zeros_like(amax), where=usable)
    q = np.rint(np.where(usable[..., None], groups, np.float32(0)) * inverse[..., None])
    return q.astype(np.int8).reshape(x.shape[0], -1)[:, :padded_columns], amax / np.float32(127)


def reference(out: F32Array, x: F32Array, weight: PackedWeight, positions: I32Array | None = None) -> None:
    if weight.format.kind.is_float:
        result = x @ unpack(weight).T
    else:
        result = _integer_reference(x, weight, positions)
    if weight.bias is not None:
        result = result + weight.bias
    out[...] = result


def _integer_reference(x: F32Array, weight: PackedWeight, positions: I32Array | None) -> F32Array:
    group, padded = weight.format.activation_columns, weight.format.padded_columns(weight.columns)
    x = rotated_columns(x) if weight.format.rotated else x
    q, scales = quantize_rows(x, group, padded)
    total = _integer_product(q, scales, weight)
    if positions is not None and (first := positions < FIRST_POSITIONS).any():
        lost = np.zeros((int(first.sum()), padded), np.float32)
        lost[:, : x.shape[1]] = x[first]
        lost -= q[first].astype(np.float32) * np.repeat(scales[first], group, axis=1)[:, :padded]
        total[first] += _integer_product(*quantize_rows(lost, group, padded), weight)
    return total


def _integer_product(x_q: NDArray[np.int8], x_scales: F32Array, weight: PackedWeight) -> F32Array:
    if weight.format.kind.is_stored:
        return stored_product(x_q, x_scales, weight)
    group = weight.format.group
    w_q, w_scales = unpack_integers(weight)
    total = np.zeros((x_q.shape[0], weight.rows), np.float32)
    for g in range(w_scales.shape[1]):
        block = slice(g * group, (g + 1) * group)
        # float64 holds these integer sums exactly: |sum| <= group * 127 * 128
        integers = x_q[:, block].astype(np.float64) @ w_q[:, block].astype(np.float64).T
        total += integers.astype(np.float32) * (x_scales[:, g : g + 1] * w_scales[:, g])
    return total


def product_cost(weight: Weight, formats: StoredFormats) -> OpCost:
    """Returns the cost of a product: 2 FLOPs for each weight and row. The weights are read once for all rows."""
    return OpCost(
        Work(0, weight_bytes=formats.weight_bytes(weight)),
        Work(2 * weight.rows * weight.columns, activation_bytes=4 * (weight.rows + weight.columns)),
    )


@dataclass(frozen=True, eq=False, slots=True)
class MatrixOp(Op):
    """The base class of all ops with one product with a packed matrix."""

    SHAPES = {"out": "T N", "x": "T K", "weight": "N K", "positions": "T"}
    CASES = (
        grid(5e-6, T=(0, 1, 6, 37), N=(1, 65, 200), K=(1, 64, 300), positions=None),
        grid(5e-6, formats=CODES, T=(1, 6, 37, 140), N=(1, 65, 200), K=(1, 64, 300), positions=between(0, 9)),
    )
    PART = OpPart.PRODUCT

    out: Value
    x: Value
    weight: Weight
    positions: Indices | None = None


@op
class Linear(MatrixOp):
    """The product x @ W.T + bias with a packed matrix W."""

    DIVIDED_WEIGHT = "weight"
    ROUNDED = "x"

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts 2 FLOPs for each weight and row. The weights are read once for all rows."""
        return product_cost(self.weight, formats)


def linear(x: Value, weight: Weight) -> Value:
    """Records the product and returns x @ W.T + bias."""
    out = x.fresh(weight.rows)
    x.trace.record(Linear(out, x.flat(), weight))
    return out
