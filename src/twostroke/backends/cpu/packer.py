"""Packing weights natively, with all threads.

Knows: ts_pack.
Must not know: files, models.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twostroke.backends.cpu.library import STATUSES, best_level, load_library
from twostroke.ops.operands import U8Array, U16Array
from twostroke.spec.formats import WeightFormat
from twostroke.types.errors import BackendError, CorruptModel


class NativePacker:
    """Satisfies `weights.load.Packer`: bit for bit what quant/codec.py defines."""

    def __init__(self, level: str | None, num_threads: int) -> None:
        self._library = load_library(level or best_level())
        self._context = self._library.ts_context_create(num_threads)
        if not self._context:
            raise BackendError(f"A pool of {num_threads} threads could not be made.", fix="Ask for fewer (--threads).")

    def close(self) -> None:
        """End the threads. Closing twice is harmless."""
        context, self._context = self._context, None
        if context:
            self._library.ts_context_destroy(context)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.close()

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
