"""Banks of packed matrices: each packed by itself, one laid after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from twostroke.ops.operands import PackedWeight
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.spec.formats import WeightFormat
from twostroke.weights.packed.blobs import aligned_bytes


@cache
def bank(count: int, rows: int, columns: int, weight_format: WeightFormat, biased: bool = False) -> PackedWeight:
    """`count` Gaussian matrices, always the same for the same shape."""
    rng = np.random.default_rng([count, rows, columns])
    return joined(
        [
            pack_weight(
                rng.standard_normal((rows, columns), dtype=np.float32),
                weight_format,
                rng.standard_normal(rows, dtype=np.float32) if biased else None,
            )
            for _ in range(count)
        ]
    )


def joined(matrices: Sequence[PackedWeight]) -> PackedWeight:
    """A bank of these, all of one shape and format; with biases where the first has one."""
    first = matrices[0]
    data = aligned_bytes(len(matrices) * first.data.size)
    data[:] = np.concatenate([each.data for each in matrices])
    scales = None if first.scales is None else np.concatenate([each.scales for each in matrices])
    bias = None if first.bias is None else np.concatenate([each.bias for each in matrices])
    return PackedWeight(first.format, first.rows, first.columns, data, scales, bias, len(matrices))
