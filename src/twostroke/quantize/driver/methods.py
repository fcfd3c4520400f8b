"""The methods of quantizing, by their names for --to. A method has an algorithm that finds codes, such as GPTQ, and the
form in which the codes are stored in safetensors, such as that of compressed-tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.quantize.driver.products import Product
from twostroke.quantize.layouts.awq import AwqLayout
from twostroke.quantize.layouts.compressed import PackedLayout, RowsLayout
from twostroke.quantize.layouts.gptq import GptqLayout
from twostroke.quantize.layouts.named import Layout
from twostroke.quantize.mathematics.gptq import GptqRule, Order, gptq
from twostroke.quantize.mathematics.moments import Moments
from twostroke.quantize.mathematics.scaling import awq_scales, smooth_scales
from twostroke.quantize.mathematics.solved import Solved, round_matrix

Solve = Callable[[F32Array, Moments, Layout, int], Solved]
"""A function that rounds a matrix: solve(matrix, moments of its inputs, layout, group size) returns codes and scales.
The moments are sums of products of inputs (the Hessian of GPTQ)."""

Scales = Callable[[F32Array, Moments, Layout, int], F32Array]
"""A function scales(matrix, moments of its inputs, layout, group size). Returns the factors by which the columns are
multiplied and the inputs divided (AWQ, SmoothQuant)."""

GROUPS = (128, 64, 32)

FEW = 4
"""An expert that got fewer rows of the text than its columns divided by this number is rounded to the nearest codes. So
few inputs tell too little about future ones."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of quantizing. in_turn: whether the inputs of a product are measured after the earlier products of its
    stage have been rounded. scales: makes factors for the columns, where a tensor before the product can be divided by
    them; None for no factors. bank_layout: the layout of experts' matrices, in which the columns of each group are
    adjacent (no act-order); None for `layout`."""

    name: str
    words: str
    layout: Layout
    solve: Solve
    in_turn: bool = False
    scales: Scales | None = None
    bank_layout: Layout | None = None

    def of(self, product: Product, moments: Moments) -> Method:
        """Returns the method for one product. It rounds to the nearest codes for an expert with too few inputs.
        moments: those of the product's inputs."""
        if product.expert is None:
            return self
        few = moments.rows * FEW < product.weight.columns
        return replace(self, layout=self.bank_layout or self.layout, solve=by_rounding if few else self.solve)


def by_gptq(matrix: F32Array, moments: Moments, layout: Layout, group: int) -> Solved:
    """Returns the codes that GPTQ finds; see mathematics/gptq.py."""
    return gptq(matrix, moments.hessian, GptqRule(layout.rule, group, layout.order))


def by_rounding(matrix: F32Array, moments: Moments, layout: Layout, group: int) -> Solved:
    """Returns the nearest codes, whatever the inputs are."""
    return round_matrix(matrix, layout.rule, group)


def by_search(matrix: F32Array, moments: Moments, layout: Layout, group: int) -> Solved:
    """Returns the nearest codes, with scales that are searched so that errors weighted by the inputs are smallest
    (AWQ's clipping)."""
    return round_matrix(matrix, layout.rule, group, np.diag(moments.hessian))


def found_scales(exact: bool) -> Scales:
    """Returns a function that finds AWQ's scales. exact: whether they are powers of two."""

    def scales(matrix: F32Array, moments: Moments, layout: Layout, group: int) -> F32Array:
        rule = replace(layout.rule, searched=False)
        return awq_scales(matrix, moments, lambda each: round_matrix(each, rule, group).values(), exact)

    return scales


def even_scales(matrix: F32Array, moments: Moments, layout: Layout, group: int) -> F32Array:
    """Returns SmoothQuant's scales as powers of two."""
    return smooth_scales(matrix, moments, exact=True)


def nearest(matrix: F32Array, layout: Layout, group: int) -> Solved:
    """Rounds each weight to its nearest code, without regard to inputs. Reports compare a calibrated method's error
    with the error of these codes."""
    return round_matrix(np.asarray(matrix, np.float32), layout.rule, group)


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("int4", "compressed-tensors, 4 bits", PackedLayout(), by_gptq, in_turn=True, scales=found_scales(True)),
        Method("int8", "compressed-tensors, 8 bits", RowsLayout(), by_rounding, scales=even_scales),
        Method(
            name="gptq",
            words="GPTQ, 4 bits, act-order",
            layout=GptqLayout(),
            solve=by_gptq,
            in_turn=True,
            scales=found_scales(True),
            bank_layout=GptqLayout(order=Order.FIXED),
        ),
        Method("awq", "AWQ, 4 bits, zero points", AwqLayout(), by_search, scales=found_scales(False)),
    )
}

ROUNDING = Method("rounding", "compressed-tensors, 4 bits, nearest codes", PackedLayout(), by_rounding)
"""The method with which others are compared. No command offers it."""
