"""The operands of the ops: packed weights, rope tables, KV layers, the attention batch.

Packed layouts, the same at every instruction-set level (N output features, K input features, both padded with zeros;
P = N / 64 panels):

    f32    (P, K, 64)         float32
    bf16   (P, K/2, 64, 2)    uint16: two consecutive k of one column side by side
    int8   (P, K/4, 64, 4)    uint8 = q + 128, q in [-127, 127]: four consecutive k of one column side by side
    int4   (P, K/8, 64, 4)    uint8: low nibble = q + 8 of k = 8i + j, high nibble = q + 8 of k = 8i + 4 + j, q in
    [-8, 7]
    scales (P, K/group, 64)   uint16 (bf16 bits), for int8 and int4

KV layer: (pages, kv_heads, 2, page_tokens * head_dim), float32 or uint16 (bf16). Part 0 is K, transposed inside its
page
to (head_dim, page_tokens), so that scores of 16 positions are one vector; part 1 is V, (page_tokens, head_dim).

Knows: shapes and layouts.
Must not know: how the numbers were rounded, who computes with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.spec.formats import PAGE_TOKENS, PANEL_ROWS, KVKind, WeightFormat, WeightKind, padded_rows

F32Array = NDArray[np.float32]
I32Array = NDArray[np.int32]
U8Array = NDArray[np.uint8]
U16Array = NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A (rows, columns) matrix W for out = x @ W.T + bias. Identity is object identity: backends key by it.

    data: (format.data_bytes,) uint8, 64-byte aligned. scales: (padded_rows * padded_columns / group,) uint16 or None.
    bias: (rows,) float32 or None.
    """

    format: WeightFormat
    rows: int
    columns: int
    data: U8Array
    scales: U16Array | None = None
    bias: F32Array | None = None

    def __post_init__(self) -> None:
        expected = self.format.data_bytes(self.rows, self.columns)
        if self.data.dtype != np.uint8 or self.data.shape != (expected,):
            raise ValueError(
                f"packed data must be uint8 of shape ({expected},), not {self.data.dtype} {self.data.shape}"
            )
        scale_count = self.format.scale_bytes(self.rows, self.columns) // 2
        found = 0 if self.scales is None else self.scales.size
        if found != scale_count:
            raise ValueError(f"packed weight needs {scale_count} scales, not {found}")
        if self.bias is not None and (self.bias.dtype != np.float32 or self.bias.shape != (self.rows,)):
            raise ValueError(f"bias must be float32 of shape ({self.rows},), not {self.bias.dtype} {self.bias.shape}")

    @property
    def total_bytes(self) -> int:
        """Bytes that one pass over the matrix reads, bias left out."""
        return self.format.total_bytes(self.rows, self.columns)


@dataclass(frozen=True, eq=False)
class RopeTable:
    """cos and sin: (positions, rotary_dim / 2) float32, attention scaling factor already multiplied in."""

    cos: F32Array
    sin: F32Array


@dataclass(frozen=True, eq=False)
class KVLayer:
    """K and V of one layer for all pages. data: (pages, kv_heads, 2, PAGE_TOKENS * head_dim)."""

    kind: KVKind
    kv_heads: int
    head_dim: int
    data: NDArray[np.float32] | U16Array

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return int(self.data.shape[0])


@dataclass(frozen=True, eq=False)
class AttentionBatch:
    """Which rows belong to which sequence and where its KV pages are.

    Sequence s owns rows [row_starts[s], row_starts[s + 1]); its last row is at position context_tokens[s] - 1.
    row_starts: (S + 1,) int32. context_tokens: (S,) int32, these rows included. page_table: (S, max_pages) int32,
    C-contiguous; entry i holds positions [16 i, 16 i + 16).
    """

    row_starts: I32Array
    context_tokens: I32Array
    page_table: I32Array


def bf16_to_f32(bits: U16Array) -> F32Array:
    """Widen bf16 bits to float32, exactly; any shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values: F32Array) -> U16Array:
    """Round float32 to the nearest bf16, ties to even; NaN stays NaN; any shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def pack_floats(values: F32Array, weight_format: WeightFormat) -> U8Array:
    """(rows, columns) float32 -> packed f32 or bf16 bytes."""
    rows, columns = values.shape
    full = np.zeros((padded_rows(rows), weight_format.padded_columns(columns)), np.float32)
    full[:rows, :columns] = values
    panels = full.reshape(-1, PANEL_ROWS, full.shape[1])
    if weight_format.kind is WeightKind.F32:
        return np.ascontiguousarray(panels.transpose(0, 2, 1)).reshape(-1).view(np.uint8)
    pairs = f32_to_bf16(panels).reshape(panels.shape[0], PANEL_ROWS, -1, 2)
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(-1).view(np.uint8)


def pack_integers(values: NDArray[np.int8], scales: U16Array, weight_format: WeightFormat) -> tuple[U8Array, U16Array]:
    """(rows, padded columns) int8 and (rows, padded columns / group) bf16 scales -> packed data and scales."""
    rows, columns = values.shape
    offset = 128 if weight_format.kind is WeightKind.INT8 else 8
    full = np.full((padded_rows(rows), columns), offset, np.uint8)
    full[:rows] = (values.astype(np.int16) + offset).astype(np.uint8)
    full_scales = np.zeros((padded_rows(rows), scales.shape[1]), np.uint16)
    full_scales[:rows] = scales
    packed_scales = full_scales.reshape(-1, PANEL_ROWS, scales.shape[1]).transpose(0, 2, 1)
    if weight_format.kind is WeightKind.INT8:
        quads = full.reshape(-1, PANEL_ROWS, columns // 4, 4)
    else:
        octets = full.reshape(-1, PANEL_ROWS, columns // 8, 2, 4)
        quads = octets[:, :, :, 0] | (octets[:, :, :, 1] << np.uint8(4))
    return (
        np.ascontiguousarray(quads.transpose(0, 2, 1, 3)).reshape(-1),
        np.ascontiguousarray(packed_scales).reshape(-1),
    )


def unpack_integers(weight: PackedWeight) -> tuple[NDArray[np.int8], F32Array]:
    """-> q (rows, padded columns) int8 and scales (rows, padded columns / group) float32."""
    columns = weight.format.padded_columns(weight.columns)
    if weight.format.kind is WeightKind.INT8:
        quads = weight.data.reshape(-1, columns // 4, PANEL_ROWS, 4).transpose(0, 2, 1, 3)
        values = (quads.astype(np.int16) - 128).reshape(-1, columns)
    else:
        quads = weight.data.reshape(-1, columns // 8, PANEL_ROWS, 4).transpose(0, 2, 1, 3)
        octets = np.stack((quads & 15, quads >> 4), axis=3)
        values = (octets.astype(np.int16) - 8).reshape(-1, columns)
    if weight.scales is None:
        raise ValueError("integer weights without scales")
    groups = columns // weight.format.group
    scales = weight.scales.reshape(-1, groups, PANEL_ROWS).transpose(0, 2, 1).reshape(-1, groups)
    return values[: weight.rows].astype(np.int8), bf16_to_f32(scales)[: weight.rows]


def unpack(weight: PackedWeight) -> F32Array:
    """-> (rows, columns) float32, what the packed matrix stands for."""
    columns = weight.format.padded_columns(weight.columns)
    if weight.format.kind is WeightKind.F32:
        panels = weight.data.view(np.float32).reshape(-1, columns, PANEL_ROWS).transpose(0, 2, 1)
        full = panels.reshape(-1, columns)
    elif weight.format.kind is WeightKind.BF16:
        pairs = weight.data.view(np.uint16).reshape(-1, columns // 2, PANEL_ROWS, 2).transpose(0, 2, 1, 3)
        full = bf16_to_f32(pairs.reshape(-1, columns))
    else:
        values, scales = unpack_integers(weight)
        full = values.astype(np.float32) * np.repeat(scales, weight.format.group, axis=1)
    return np.ascontiguousarray(full[: weight.rows, : weight.columns])


def new_kv_layer(kind: KVKind, num_pages: int, kv_heads: int, head_dim: int) -> KVLayer:
    """A zeroed KV layer (lazily backed: untouched pages cost no memory)."""
    dtype = np.float32 if kind is KVKind.F32 else np.uint16
    data = np.zeros((num_pages, kv_heads, 2, PAGE_TOKENS * head_dim), dtype)
    return KVLayer(kind, kv_heads, head_dim, data)
