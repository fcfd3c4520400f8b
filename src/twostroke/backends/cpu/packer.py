"""Packs weights natively, with all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from twostroke.backends.cpu.context import NativeContext
from twostroke.backends.cpu.library import STATUSES
from twostroke.ops.operands import U8Array, U16Array
from twostroke.types.errors import BackendError, CorruptModel
from twostroke.types.spec.formats import WeightFormat, WeightKind

BAD_VALUE = -6
"""The status TS_BAD_VALUE of ts_status."""

BLOCK_NUMBERS = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
    "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39, "NVFP4": 40,
}  # fmt: skip
"""ggml's numbers of the block types that can be packed natively."""


class NativePacker(NativeContext):
    """Packs matrices natively, with the bits that ops/quant/codec.py and ops/stored_layout.py define. Satisfies
    `rounded_packing.Packer`."""

    block_types = frozenset(BLOCK_NUMBERS)

    def pack(self, source: Any, weight_format: WeightFormat, data: U8Array, scales: U16Array | None) -> None:
        """Packs a matrix into `data` and `scales`. source: (rows, columns), C-contiguous, float32 or bf16 bits. Raises
        CorruptModel or BackendError."""
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
        status = self._library.ts_pack(self._context, *where, *what, data.ctypes.data, scales_at, weight_format.rotated)
        if status == BAD_VALUE:
            raise CorruptModel("A weight is not finite or absurdly large.", fix="Download the checkpoint again.")
        if status:
            raise BackendError(f"pack was refused: {STATUSES.get(status, status)}.")

    def pack_blocks(self, block: str, raw: U8Array, columns: int, kind: WeightKind, data: U8Array) -> bool:
        """Packs a GGUF file's quantized blocks, `raw`, into `data`, as `stored_packing.BlockPacker` describes. Raises
        BackendError where the kind does not hold such blocks."""
        if not (raw.flags.c_contiguous and data.flags.c_contiguous):
            raise BackendError("pack_blocks: blocks and packed bytes must be contiguous.")
        source = (BLOCK_NUMBERS[block], raw.ctypes.data, raw.nbytes, len(raw), columns)
        status = self._library.ts_pack_blocks(*source, int(kind), data.ctypes.data, data.nbytes)
        if status not in (0, BAD_VALUE):
            raise BackendError(f"pack_blocks was refused: {STATUSES.get(status, status)}.")
        return bool(status == 0)
