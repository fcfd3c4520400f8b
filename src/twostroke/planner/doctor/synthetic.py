"""Weights and KV pages made of nothing: one block of memory, seen as matrices and pages of every format.

Knows: packed layouts' sizes.
Must not know: kernels, clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import KVLayer, PackedWeight, U8Array
from twostroke.spec.formats import PAGE_TOKENS, KVKind, WeightFormat

BYTES = np.array([0x3B, 0x3C, 0x3D, 0xBB, 0xBC, 0xBD], np.uint8)
"""Any of these side by side is a float32 and a bf16 of magnitude 0.003 to 0.05, and fair int8 and int4 numbers."""

BLOCK_BYTES = 1 << 20

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 2048, 8192, 32, 8, 64
"""The layer that is timed: that of Llama-3.2-1B."""

LAYER_SHAPES = ((HIDDEN + 2 * KV_HEADS * HEAD_DIM, HIDDEN), (HIDDEN, HIDDEN), (2 * INNER, HIDDEN), (HIDDEN, INNER))
"""QKV, O, GATE_UP, DOWN: (output features, input features)."""

LAYER_WEIGHTS = sum(rows * columns for rows, columns in LAYER_SHAPES)


def random_memory(num_bytes: int) -> U8Array:
    """(num_bytes,) uint8 at a 64-byte boundary, touched, never denormal in any format."""
    room = np.empty(num_bytes + 64, np.uint8)
    memory: U8Array = room[-room.ctypes.data % 64 :][:num_bytes]
    block = np.random.default_rng(0).choice(BYTES, BLOCK_BYTES)
    for first in range(0, num_bytes, BLOCK_BYTES):
        piece = memory[first : first + BLOCK_BYTES]
        piece[:] = block[: len(piece)]
    return memory


@dataclass(frozen=True, eq=False)
class Layer:
    """The four matrices of one layer, in the order of LAYER_SHAPES."""

    qkv: PackedWeight
    o: PackedWeight
    gate_up: PackedWeight
    down: PackedWeight


def layers_in(memory: U8Array, weight_format: WeightFormat, most_bytes: int) -> list[Layer]:
    """As many layers as lie in the first `most_bytes` of `memory`, one after the other, at least one."""
    found: list[Layer] = []
    at = 0
    step = sum(-(-weight_format.total_bytes(*shape) // 64) * 64 + 64 for shape in LAYER_SHAPES)
    while not found or at + step <= min(most_bytes, memory.nbytes):
        matrices = []
        for rows, columns in LAYER_SHAPES:
            data_bytes, scale_bytes = (
                weight_format.data_bytes(rows, columns),
                weight_format.scale_bytes(rows, columns),
            )
            data = memory[at : at + data_bytes]
            at += -(-data_bytes // 64) * 64
            scales = memory[at : at + scale_bytes].view(np.uint16) if scale_bytes else None
            at += -(-scale_bytes // 64) * 64
            matrices.append(PackedWeight(weight_format, rows, columns, data, scales))
        found.append(Layer(*matrices))
    return found


def pages_in(memory: U8Array, kind: KVKind) -> KVLayer:
    """All of `memory` as KV pages of KV_HEADS heads of HEAD_DIM."""
    page_bytes = KV_HEADS * PAGE_TOKENS * kind.token_bytes(HEAD_DIM)
    pages = memory.nbytes // page_bytes
    flat = memory[: pages * page_bytes]
    if kind.is_integer:
        return KVLayer(kind, KV_HEADS, HEAD_DIM, flat.reshape(pages, KV_HEADS, -1))
    shape = (pages, KV_HEADS, 2, -1)
    if kind is KVKind.F32:
        return KVLayer(kind, KV_HEADS, HEAD_DIM, flat.view(np.float32).reshape(shape))
    return KVLayer(kind, KV_HEADS, HEAD_DIM, flat.view(np.uint16).reshape(shape))
