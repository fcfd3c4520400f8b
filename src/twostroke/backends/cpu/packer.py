"""Packing weights natively, with all threads.

Knows: ts_pack.
Must not know: files, models.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twostroke.backends.cpu.context import NativeContext
from twostroke.backends.cpu.library import STATUSES
from twostroke.ops.operands import U8Array, U16Array
from twostroke.spec.formats import WeightFormat
from twostroke.types.errors import BackendError, CorruptModel


class NativePacker(NativeContext):
    """Satisfies `weights.load.Packer`: bit for bit what quant/codec.py defines."""

    def pack(self, source: Any, weight_format: WeightFormat, data: U8Array, scales: U16Array | None) -> None:
        """source (rows, columns) C-contiguous float32 or bf16 bits. Raises CorruptModel, BackendError."""
        if source.dtype not in (np.float32, np.uint16) or source.ndim != 2 or not source.flags.c_contiguous:
            raise BackendError("pack: source must be a contiguous matrix of float32 or bf16 bits.")
        rows, columns = source.shape
        if data.nbytes != weight_format.data_bytes(rows, columns):
            raise BackendError(f"pack: data has {data.nbytes} bytes, not {weight_format.data_bytes(rows, columns)}.")
        if (0 if scales is None else scales.nbytes) != weight_format.scale_bytes(rows, columns):
            raise BackendError(f"pack: scales need {weight_format.scale_bytes(rows, columns)} bytes.")
        source_kind = 0 if source.dtype == np.float32 else 1
        where = (source.ctypes.data, source_kind, columns, 0, rows)
        what = (int(weight_format.kind), weight_format.group, rows, columns)
        scales_at = None if scales is None else scales.ctypes.data
        status = self._library.ts_pack(self._context, *where, *what, data.ctypes.data, scales_at)
        if status == -6:
            raise CorruptModel("A weight is not finite or absurdly large.", fix="Download the checkpoint again.")
        if status:
            raise BackendError(f"pack was refused: {STATUSES.get(status, status)}.")
