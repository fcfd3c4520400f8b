"""Calls that are compared on a device, in addition to the cases of each op: large products, extreme values, codes of
files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from tools.gpu.op_cases import OpCase, cases_of, every_case
from tools.gpu.stored_values import KINDS

from twostroke.ops.cases import grid, routes
from twostroke.ops.operands import PackedWeight
from twostroke.ops.products.embed import Embed
from twostroke.ops.products.experts import Experts
from twostroke.ops.products.linear import Linear
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.spec.formats import BF16, F32, STORED_GROUP, WeightFormat, WeightKind

FORMATS = (F32, BF16, WeightFormat(WeightKind.INT8, 128), WeightFormat(WeightKind.INT4, 128))
OF_EACH_OP = 8
STORED = tuple(WeightFormat(kind, STORED_GROUP) for kind in KINDS)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns Gaussian float32 numbers, some of which are zero and some large."""
    rng = np.random.default_rng([seed, *shape])
    found = rng.standard_normal(shape).astype(np.float32)
    found[rng.random(shape) < 0.02] = 0.0
    found[rng.random(shape) < 0.02] *= 40.0
    return found


def packed(rows: int, columns: int, weight_format: WeightFormat, biased: bool) -> PackedWeight:
    """Returns a packed Gaussian matrix, with or without a bias."""
    bias = numbers(rows, seed=3) if biased else None
    return pack_weight(numbers(rows, columns, seed=2), weight_format, bias)


def op_cases() -> Iterator[OpCase]:
    """Yields all calls that are compared."""
    yield from every_case(OF_EACH_OP)
    for rows, columns, count in ((1024, 1024, 3), (256, 2048, 130)):
        yield from cases_of(Linear, grids=(grid(formats=FORMATS, N=rows, K=columns, T=count),))
    yield from cases_of(Linear, grids=(grid(formats=STORED, N=66, K=768, T=3, biased=False),))
    yield from cases_of(Embed, grids=(grid(formats=STORED, N=66, D=768, T=4, biased=False),))
    banks = grid(formats=STORED, T=3, D=256, N="D", F=256, C=2, bank=3, routes=routes("3"), biased=False,
                 gate_up="2 F", down="N", middle="F")  # fmt: skip
    yield from cases_of(Experts, grids=(banks,))
    for weight_format in FORMATS:
        yield from _extremes(weight_format)


def _extremes(weight_format: WeightFormat) -> Iterator[OpCase]:
    """Yields calls with the largest sums of a group, of both signs, and with scales that are NaN and infinite. Some of
    their rows have NaN, infinity, a very small number or only zeros."""
    rows, columns = 66, 512
    signs = np.where(np.arange(rows * columns).reshape(rows, columns) // columns % 2, -1.0, 1.0).astype(np.float32)
    weight, name = pack_weight(signs, weight_format), weight_format.kind.name.lower()
    x = np.ones((6, columns), np.float32)
    x[1], x[2, 3], x[3, 3], x[4], x[5] = -1e30, np.nan, np.inf, 1e-42, 0.0
    yield OpCase("linear", f"{name}, largest sums", (np.zeros((6, rows), np.float32), x, weight))
    if weight.scales is not None:
        scales = weight.scales.copy()
        scales.reshape(-1)[:2] = np.array([np.nan, np.inf], np.float16).view(scales.dtype)
        broken = replace(weight, scales=scales)
        yield OpCase("linear", f"{name}, scales NaN and infinite", (np.zeros((6, rows), np.float32), x, broken))
