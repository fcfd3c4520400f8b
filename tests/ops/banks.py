"""Banks of packed matrices. Each matrix is packed by itself, and they lie one after the other."""

from __future__ import annotations

from functools import cache

import numpy as np
from tools.gpu.op_cases import joined

from twostroke.ops.operands import PackedWeight
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.spec.formats import WeightFormat


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
