"""The inputs of a bank's experts: for gate_up the rows that use the expert, and for down what gate_up makes of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products.experts import Experts, activated
from twostroke.ops.program.values import Weight


def expert_rows(
    call: Experts, x: F32Array, routes: F32Array, gate_up: PackedWeight
) -> Iterator[tuple[int, Weight, F32Array]]:
    """Yields the inputs (n, columns) of each expert that a row of x (T, D) uses, in two items. The first is (expert,
    gate_up bank, the rows of x). The second is (expert, down bank, what gate_up and the activation make of these
    rows)."""
    weights, numbers = np.split(routes, 2, axis=1)
    chosen = numbers.astype(np.int64)
    for expert in np.unique(chosen).tolist():
        met, place = np.nonzero(chosen == expert)
        rows = np.ascontiguousarray(x[met] * weights[met, place][:, None] if call.weigh_inputs else x[met])
        yield expert, call.gate_up, rows
        inner = np.empty((len(rows), call.down.columns), np.float32)
        middle = np.empty((len(rows), call.middle.width), np.float32)
        act = call.activation, call.limit, call.shift, call.hold_values
        activated(inner, rows, gate_up.expert(expert), middle, act)
        yield expert, call.down, inner
