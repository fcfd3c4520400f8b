"""The operands of the ops: packed weights, rope tables, KV layers, the attention batch.

Packed layouts, the same at every instruction-set level (N output features, K input features, both padded with zeros;
P = N / 64 panels):

    f32    (P, K, 64)         float32
    bf16   (P, K/2, 64, 2)    uint16: two consecutive k of one column side by side
    int8   (P, K/4, 64, 4)    uint8 = q + 128, q in [-127, 127]: four consecutive k of one column side by side
    int4   (P, K/64, 2176)    for each 64 k of a panel, uint8:
                              (2, 64) multipliers m in [0, 15], one for 16 k of a column: byte [i, c] holds those of
                              k = 32i .. 32i + 15 (low nibble) and of the next 16 (high nibble); then
                              (8, 64, 4) elements q in [-8, 7]: low nibble = q + 8 of k = 8i + j, high nibble = q + 8 of
                              k = 8i + 4 + j. The weight is (q * m) * scale; q * m, in [-120, 105], is its int8 number
    scales (P, groups, 64)    uint16 (bf16 bits), for int8 and int4; groups of `group` k, the last may be shorter

KV layer, f32: (pages, kv_heads, page_tokens * (head_dim + value_dim)) float32. First K, transposed inside its page to
(head_dim, page_tokens), so that scores of 16 positions are one vector; then V, (page_tokens, value_dim).
KV layer, bf16: the same in uint16, in pairs as matrix registers want them. K (head_dim / 2, page_tokens, 2) has pairs
of dimensions, V (page_tokens / 2, value_dim, 2) pairs of positions. Odd sizes are padded with zeros to even ones.
KV layer, int8 and int4: (pages, kv_heads, bytes) uint8, laid out in ops/attention/kv_pages.py.
A layer of latents has one head and no V of its own: the first value_dim dimensions of K are also V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.device_memory import HOST, DeviceMemory
from twostroke.types.spec.formats import (
    PAGE_TOKENS,
    PANEL_ROWS,
    STEP_COLUMNS,
    SUBGROUP_COLUMNS,
    KVKind,
    WeightFormat,
    WeightKind,
    padded_rows,
)

F32Array = NDArray[np.float32]
I32Array = NDArray[np.int32]
U8Array = NDArray[np.uint8]
U16Array = NDArray[np.uint16]


INT4_STEP_BYTES = (2 + 8 * 4) * PANEL_ROWS
"""The number of bytes of 64 columns of one int4 panel. Each of its 64 rows has two bytes of multipliers and 32 bytes of
elements."""


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A (rows, columns) matrix W for out = x @ W.T + bias. Two weights are the same only when they are one object:
    backends use the object as a key.

    data: (format.data_bytes,) uint8, 64-byte aligned. scales: (padded_rows * groups,) uint16, or (columns,), or None.
    bias: (rows,) float32 or None. experts: for a bank, how many such matrices lie one after the other in data, scales
    and bias; 0 for one matrix alone.
    """

    format: WeightFormat
    rows: int
    columns: int
    data: U8Array
    scales: U16Array | None = None
    bias: F32Array | None = None
    experts: int = 0

    def __post_init__(self) -> None:
        count = max(1, self.experts)
        expected = count * self.format.data_bytes(self.rows, self.columns)
        if self.data.dtype != np.uint8 or self.data.shape != (expected,):
            raise ValueError(
                f"packed data must be uint8 of shape ({expected},), not {self.data.dtype} {self.data.shape}"
            )
        scale_count = count * self.format.scale_bytes(self.rows, self.columns) // 2
        found = 0 if self.scales is None else self.scales.size
        if found != scale_count:
            raise ValueError(f"packed weight needs {scale_count} scales, not {found}")
        biases = (count * self.rows,)
        if self.bias is not None and (self.bias.dtype != np.float32 or self.bias.shape != biases):
            raise ValueError(f"bias must be float32 of shape {biases}, not {self.bias.dtype} {self.bias.shape}")

    @property
    def total_bytes(self) -> int:
        """The number of bytes that one pass over all matrices of this weight reads, without the bias."""
        return max(1, self.experts) * self.format.total_bytes(self.rows, self.columns)

    def expert(self, index: int) -> PackedWeight:
        """Returns one matrix of a bank, as views."""
        data_bytes, scales = self.data.size // self.experts, None
        if self.scales is not None:
            each = self.scales.size // self.experts
            scales = self.scales[index * each : (index + 1) * each]
        bias = None if self.bias is None else self.bias[index * self.rows : (index + 1) * self.rows]
        data = self.data[index * data_bytes : (index + 1) * data_bytes]
        return PackedWeight(self.format, self.rows, self.columns, data, scales, bias)


@dataclass(frozen=True, eq=False)
class RopeTable:
    """cos and sin: (positions, rotary_dim / 2) float32. The attention scaling factor is already multiplied into both.
    """

    cos: F32Array
    sin: F32Array


@dataclass(frozen=True, eq=False)
class KVLayer:
    """K and V of one layer for all pages. data: (pages, kv_heads, numbers or bytes), laid out as this module describes.

    v_dim: the head size of V; 0 means that of K. is_latent: whether V is the first v_dim dimensions of K.
    """

    kind: KVKind
    kv_heads: int
    head_dim: int
    data: NDArray[np.float32] | U16Array | U8Array
    v_dim: int = 0
    is_latent: bool = False

    @property
    def value_dim(self) -> int:
        """The head size of V."""
        return self.v_dim or self.head_dim

    @property
    def num_pages(self) -> int:
        """The number of pages in the layer."""
        return int(self.data.shape[0])


@dataclass(frozen=True, eq=False)
class AttentionBatch:
    """Which rows belong to which sequence, and where the sequence's KV pages are.

    Sequence s owns rows [row_starts[s], row_starts[s + 1]); its last row is at position context_tokens[s] - 1.
    row_starts: (S + 1,) int32. context_tokens: (S,) int32, the rows of this step included. page_table: (S, max_pages)
    int32, C-contiguous; entry i holds positions [16 i, 16 i + 16).
    """

    row_starts: I32Array
    context_tokens: I32Array
    page_table: I32Array


def bf16_to_f32(bits: U16Array) -> F32Array:
    """Widens bf16 bits to float32, exactly. Any shape is allowed."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values: F32Array) -> U16Array:
    """Rounds float32 to the nearest bf16, ties to even. NaN stays NaN. Any shape is allowed."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def pack_floats(values: F32Array, weight_format: WeightFormat) -> U8Array:
    """Packs (rows, columns) float32 as f32 or bf16 bytes."""
    rows, columns = values.shape
    full = np.zeros((padded_rows(rows), weight_format.padded_columns(columns)), np.float32)
    full[:rows, :columns] = values
    panels = full.reshape(-1, PANEL_ROWS, full.shape[1])
    if weight_format.kind is WeightKind.F32:
        return np.ascontiguousarray(panels.transpose(0, 2, 1)).reshape(-1).view(np.uint8)
    pairs = f32_to_bf16(panels).reshape(panels.shape[0], PANEL_ROWS, -1, 2)
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(-1).view(np.uint8)


def pack_columns(values: NDArray[np.int8]) -> U8Array:
    """Packs (rows, columns) int8 as the bytes of a format that has one scale for each column."""
    rows, columns = values.shape
    full = np.zeros((padded_rows(rows), columns), np.int8)
    full[:rows] = values
    return np.ascontiguousarray(full.reshape(-1, PANEL_ROWS, columns).transpose(0, 2, 1)).reshape(-1).view(np.uint8)


def pack_integers(
    values: NDArray[np.int8], multipliers: U8Array | None, scales: U16Array, weight_format: WeightFormat
) -> tuple[U8Array, U16Array]:
    """Packs whole numbers, and returns the packed data and scales. values: (rows, K) int8, where K is a multiple of 64.
    multipliers: (rows, K / 16) for int4. scales: (rows, groups) bf16."""
    rows, columns = values.shape
    offset = 128 if weight_format.kind is WeightKind.INT8 else 8
    full = np.full((padded_rows(rows), columns), offset, np.uint8)
    full[:rows] = (values.astype(np.int16) + offset).astype(np.uint8)
    full_scales = np.zeros((padded_rows(rows), scales.shape[1]), np.uint16)
    full_scales[:rows] = scales
    packed_scales = np.ascontiguousarray(full_scales.reshape(-1, PANEL_ROWS, scales.shape[1]).transpose(0, 2, 1))
    if multipliers is None:
        quads = full.reshape(-1, PANEL_ROWS, columns // 4, 4).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(quads).reshape(-1), packed_scales.reshape(-1)
    full_multipliers = np.zeros((padded_rows(rows), columns // SUBGROUP_COLUMNS), np.uint8)
    full_multipliers[:rows] = multipliers
    data = np.concatenate((nibbles_of(full_multipliers, 1, 2), nibbles_of(full, 4, 8)), axis=2)
    return data.reshape(-1), packed_scales.reshape(-1)


def nibbles_of(values: U8Array, together: int, runs: int) -> U8Array:
    """Packs nibbles: (N, K') values below 16 become (P, K' / (2 runs together), runs * 64 * together) bytes. P panels
    have 64 rows each. 2 * `together` adjacent values of a row become `together` bytes: the first half of the values are
    the low nibbles, the second half the high nibbles.

    values: C-contiguous. together: 1 or 4; 4 values are handled as one number, for speed. runs: a block of the result
    has `runs` times 2 * `together` columns of the 64 rows of a panel.
    """
    rows, columns = values.shape
    numbers: NDArray[Any] = values.view(np.uint32 if together == 4 else np.uint8)
    pairs = numbers.reshape(rows // PANEL_ROWS, PANEL_ROWS, columns // (2 * runs * together), runs, 2)
    packed = pairs[..., 1] << numbers.dtype.type(4)
    packed |= pairs[..., 0]
    panels = np.ascontiguousarray(packed.transpose(0, 2, 3, 1))
    return panels.view(np.uint8).reshape(packed.shape[0], packed.shape[2], -1)


def nibbles_to(packed: U8Array, together: int, runs: int) -> U8Array:
    """Unpacks the result of nibbles_of, with the same `together` and `runs`: (P, blocks, bytes) become (N, K')
    values."""
    panels, steps, _ = packed.shape
    shaped = packed.reshape(panels, steps, runs, PANEL_ROWS, together).transpose(0, 3, 1, 2, 4)
    return np.stack((shaped & 15, shaped >> 4), axis=4).reshape(panels * PANEL_ROWS, -1)


def unpack_integers(weight: PackedWeight) -> tuple[NDArray[np.int8], F32Array]:
    """Returns integers (rows, padded columns) int8 (for int4: q times multiplier) and scales (rows, groups) float32."""
    columns = weight.format.padded_columns(weight.columns)
    if weight.scales is None:
        raise ValueError("integer weights need scales")
    if weight.format.kind is WeightKind.INT8:
        quads = weight.data.reshape(-1, columns // 4, PANEL_ROWS, 4).transpose(0, 2, 1, 3)
        values = (quads.astype(np.int16) - 128).reshape(-1, columns)
    else:
        steps = weight.data.reshape(-1, columns // STEP_COLUMNS, INT4_STEP_BYTES)
        multipliers = nibbles_to(steps[:, :, : 2 * PANEL_ROWS], 1, 2).astype(np.int16)
        elements = nibbles_to(steps[:, :, 2 * PANEL_ROWS :], 4, 8).astype(np.int16) - 8
        values = elements * np.repeat(multipliers, SUBGROUP_COLUMNS, axis=1)
    groups = weight.format.num_groups(weight.columns)
    scales = weight.scales.reshape(-1, groups, PANEL_ROWS).transpose(0, 2, 1).reshape(-1, groups)
    return values[: weight.rows].astype(np.int8), bf16_to_f32(scales)[: weight.rows]


def new_kv_layer(
    kind: KVKind,
    num_pages: int,
    kv_heads: int,
    head_dim: int,
    v_dim: int = 0,
    *,
    is_latent: bool = False,
    memory: DeviceMemory = HOST,
) -> KVLayer:
    """Makes a KV layer of zeros at a 64-byte boundary; see KVLayer. On the host, pages that were never touched cost no
    memory."""
    head_bytes = kind.latent_bytes(head_dim) if is_latent else kind.token_bytes(head_dim, v_dim or head_dim)
    flat = memory.zeros(num_pages * kv_heads * PAGE_TOKENS * head_bytes)
    return KVLayer(kind, kv_heads, head_dim, paged(kind, flat, num_pages, kv_heads), v_dim, is_latent)


def paged(kind: KVKind, flat: U8Array, num_pages: int, kv_heads: int) -> NDArray[np.float32] | U16Array | U8Array:
    """Returns the bytes of a pool in the shape and dtype of KVLayer.data."""
    numbers = {KVKind.F32: np.float32, KVKind.BF16: np.uint16}.get(kind, np.uint8)
    return flat.view(numbers).reshape(num_pages, kv_heads, -1)
