"""Unpacks matrices to float32: the NumPy definition of every weight format."""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import F32Array, PackedWeight, bf16_to_f32, unpack_integers
from twostroke.ops.rotation import rotated_columns
from twostroke.ops.stored_layout import stored_values
from twostroke.types.spec.formats import PANEL_ROWS, WeightKind


def unpack(weight: PackedWeight) -> F32Array:
    """Returns the values of a packed matrix, (rows, columns) float32."""
    full = packed_values(weight)
    full = rotated_columns(full) if weight.format.rotated else full
    return np.ascontiguousarray(full[: weight.rows, : weight.columns])


def packed_values(weight: PackedWeight) -> F32Array:
    """Returns the values of a packed matrix, float32, with all padded rows and columns. In formats with rotated
    columns, these are the columns after the Hadamard rotation."""
    columns = weight.format.padded_columns(weight.columns)
    if weight.format.kind is WeightKind.F32:
        panels = weight.data.view(np.float32).reshape(-1, columns, PANEL_ROWS).transpose(0, 2, 1)
        full = panels.reshape(-1, columns)
    elif weight.format.kind is WeightKind.BF16:
        pairs = weight.data.view(np.uint16).reshape(-1, columns // 2, PANEL_ROWS, 2).transpose(0, 2, 1, 3)
        full = bf16_to_f32(pairs.reshape(-1, columns))
    elif weight.format.has_column_scales and weight.scales is not None:
        numbers = weight.data.view(np.int8).reshape(-1, columns, PANEL_ROWS).transpose(0, 2, 1)
        full = numbers.reshape(-1, columns) * bf16_to_f32(weight.scales)
    elif weight.format.kind.is_stored:
        full = stored_values(weight).values()
    else:
        values, scales = unpack_integers(weight)
        full = values.astype(np.float32) * np.repeat(scales, weight.format.group, axis=1)[:, :columns]
    return full
