"""The layout of KV pages and the rounding of int8 and int4 K and V, in NumPy. The kernels are tested against this file.

f32 and bf16 pages are in ops/operands.py. One head of an int8 or int4 page is, in this order:

    K      int8: (ceil(head_dim / 4), 16, 4) uint8, q + 128 of dimension 4i + j of each position
           int4: (ceil(head_dim / 8), 16, 4) uint8: low nibble = q + 8 of dimension 8i + j, high = q + 8 of 8i + 4 + j
    V      int8: (4, head_dim, 4) int8, of positions 4i + j
           int4: (4, ceil(head_dim / 32), 16, 4) uint8, of positions 4i + j: low nibble = q + 8 of dimension 32b + l,
                 high = q + 8 of 32b + 16 + l
    scales K's (16,) and V's (16,) bf16, one for each position

With this layout sixteen lanes of a dot product of bytes take 64 consecutive bytes, four for each lane. Every byte
belongs to one position, and a tile of pages is read once, from front to back. Dimensions that pad a quad or a block are
zeros. In the lines about V, head_dim is that of V.

A page of latents has K alone. Each position has two scales: one of the latent, which is the first value_dim dimensions,
and one of the turned key after the latent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import (
    AttentionBatch,
    F32Array,
    I32Array,
    KVLayer,
    U8Array,
    U16Array,
    bf16_to_f32,
    f32_to_bf16,
)
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

SCALE_BYTES = 2 * PAGE_TOKENS
QUAD = 4
"""How many bytes a dot-product instruction (such as VNNI's) multiplies and adds in each 32-bit lane."""


def quantize_rows(kind: KVKind, rows: F32Array) -> tuple[NDArray[np.int8], U16Array]:
    """Rounds rows (..., head_dim) float32 to q, int8 of the same shape, and one bf16 scale for each row (...,). A row
    is nearly q * scale.

    int8: scale = bf16(largest magnitude / 127), q in [-127, 127]. int4: scale = bf16(e / -8) for e the first element of
    the largest magnitude, so that e itself becomes -8; q in [-8, 7]. q = row / scale, rounded to nearest, ties to even.
    A scale of zero makes zeros; a row that is not finite gets zeros and the scale NaN, and reads back as NaN.
    """
    at = np.abs(rows).argmax(axis=-1)
    extreme = np.take_along_axis(rows, at[..., None], axis=-1)[..., 0]
    with np.errstate(all="ignore"):
        exact = np.abs(extreme) / np.float32(127) if kind is KVKind.INT8 else extreme / np.float32(-8)
        bits = np.where(np.isfinite(extreme), f32_to_bf16(exact.astype(np.float32)), np.uint16(0x7FC0))
        quotient = rows / bf16_to_f32(bits)[..., None]
        low, high = (-127, 127) if kind is KVKind.INT8 else (-8, 7)
        usable = np.isfinite(extreme) & ((bits & 0x7FFF) != 0)
        q = np.where(usable[..., None], np.clip(np.rint(quotient), low, high), 0)
    return q.astype(np.int8), bits


def write_rows(layer: KVLayer, k: F32Array, v: F32Array, pages: I32Array, offsets: I32Array) -> None:
    """Writes row t of k and v (T, kv_heads, head_dim) float32 at position offsets[t] of page pages[t]."""
    if layer.kind.is_integer:
        (q_k, k_bits), (q_v, v_bits) = quantize_rows(layer.kind, k), quantize_rows(layer.kind, v)
        keys, values, key_scales, value_scales = _parts(layer)
        keys[pages, :, :, offsets], key_scales[pages, :, offsets] = _key_bytes(layer.kind, q_k), k_bits
        values[pages, :, offsets // QUAD, :, offsets % QUAD] = _value_bytes(layer.kind, q_v)
        value_scales[pages, :, offsets] = v_bits
        return
    # Splitting the last axis of a slice never copies: these are views.
    if layer.kind is KVKind.BF16:
        k_pairs, v_pairs = _pairs(layer)
        k_pairs[pages, :, :, offsets] = _even(f32_to_bf16(k)).reshape(*k.shape[:2], -1, 2)
        v_pairs[pages, :, offsets // 2, :, offsets % 2] = _even(f32_to_bf16(v))
        return
    all_keys, all_values = _floats(layer)
    all_keys[pages, :, :, offsets] = k
    all_values[pages, :, offsets] = v


def write_latents(layer: KVLayer, rows: F32Array, pages: I32Array, offsets: I32Array) -> None:
    """Writes row t of `rows` (T, head_dim) float32 at position offsets[t] of page pages[t] of a layer of latents."""
    if layer.kind.is_integer:
        halves = [quantize_rows(layer.kind, each) for each in np.split(rows, [layer.value_dim], axis=-1)]
        keys, _, *scales = _parts(layer)
        keys[pages, 0, :, offsets] = _key_bytes(layer.kind, np.concatenate([q for q, _ in halves], axis=-1))
        for (_, bits), stored in zip(halves, scales, strict=True):
            stored[pages, 0, offsets] = bits
    elif layer.kind is KVKind.BF16:
        bits = _even(f32_to_bf16(rows)[:, None]).reshape(len(rows), -1, 2)
        _pairs(layer)[0][pages, 0, :, offsets] = bits
    else:
        _floats(layer)[0][pages, 0, :, offsets] = rows


def read_latents(layer: KVLayer, page_ids: NDArray[np.integer]) -> F32Array:
    """Returns whole pages of a layer of latents, as (pages, PAGE_TOKENS, head_dim) float32."""
    picked = _picked(layer, page_ids)
    if layer.kind.is_integer:
        keys, _, *scales = _parts(picked)
        whole = _key_integers(layer.kind, keys, layer.head_dim).astype(np.float32)[:, 0]
        latent, turned = (bf16_to_f32(each[:, 0])[..., None] for each in scales)
        return np.concatenate((whole[..., : layer.value_dim] * latent, whole[..., layer.value_dim :] * turned), axis=-1)
    if layer.kind is KVKind.BF16:
        bits = _pairs(picked)[0][:, 0].transpose(0, 2, 1, 3).reshape(picked.num_pages, PAGE_TOKENS, -1)
        return bf16_to_f32(bits[..., : layer.head_dim])
    found: F32Array = _floats(picked)[0][:, 0].transpose(0, 2, 1)
    return found


def seen_pages(page_ids: np.ndarray, position: int, window: int) -> np.ndarray:
    """Returns page_ids with valid pages alone. Pages before the window were given back: no row from `position` on sees
    them. The first page that is seen takes their places."""
    first = first_seen(position, window) // PAGE_TOKENS
    return np.concatenate((np.repeat(page_ids[first : first + 1], first), page_ids[first:]))


def first_seen(position: int, window: int) -> int:
    """Returns the first position that a row at `position` sees. window: the number of last positions that a row sees, 0
    for all. Below 0, a row sees its own chunk of -window positions up to itself."""
    if window < 0:
        return position - position % -window
    return max(0, position - window + 1) if window else 0


def latents_seen(layer: KVLayer, batch: AttentionBatch, window: int = 0) -> Iterator[tuple[int, F32Array]]:
    """Yields each row of the step, and the vectors at the positions that it sees, (positions, head_dim). window: how
    many last positions a row sees; 0 for all."""
    for s, context in enumerate(batch.context_tokens.tolist()):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        pages = seen_pages(batch.page_table[s, : -(-context // PAGE_TOKENS)], context - (last - first), window)
        held = read_latents(layer, pages).reshape(-1, layer.head_dim)
        for row in range(first, last):
            position = context - (last - row)
            yield row, held[first_seen(position, window) : position + 1]


def read_pages(layer: KVLayer, page_ids: NDArray[np.integer]) -> tuple[F32Array, F32Array]:
    """Returns K (pages, kv_heads, PAGE_TOKENS, head_dim) and V (pages, kv_heads, PAGE_TOKENS, value_dim) of whole
    pages."""
    dim, picked = layer.head_dim, _picked(layer, page_ids)
    if layer.kind.is_integer:
        keys, _, key_scales, _ = _parts(picked)
        values, value_scales = read_value_integers(layer, page_ids)
        q_keys = _key_integers(layer.kind, keys, dim)
        return q_keys.astype(np.float32) * bf16_to_f32(key_scales)[..., None], values * value_scales[..., None]
    if layer.kind is KVKind.BF16:
        k_pairs, v_pairs = _pairs(picked)
        shape = (picked.num_pages, layer.kv_heads, PAGE_TOKENS, -1)
        k_bits, v_bits = k_pairs.transpose(0, 1, 3, 2, 4).reshape(shape), v_pairs.swapaxes(-1, -2).reshape(shape)
        return bf16_to_f32(k_bits[..., :dim]), bf16_to_f32(v_bits[..., : layer.value_dim])
    all_keys, all_values = _floats(picked)
    return all_keys.swapaxes(-1, -2), all_values


def read_value_integers(layer: KVLayer, page_ids: NDArray[np.integer]) -> tuple[F32Array, F32Array]:
    """Returns V of an integer layer: whole numbers (pages, kv_heads, PAGE_TOKENS, value_dim), and scales (pages,
    kv_heads, PAGE_TOKENS)."""
    _, values, _, scales = _parts(_picked(layer, page_ids))
    return _value_integers(layer.kind, values, layer.value_dim).astype(np.float32), bf16_to_f32(scales)


def _picked(layer: KVLayer, page_ids: NDArray[np.integer]) -> KVLayer:
    """Returns a layer that has only the pages `page_ids`."""
    return replace(layer, data=np.ascontiguousarray(layer.data[page_ids]))


def _floats(layer: KVLayer) -> tuple[F32Array, F32Array]:
    """Returns views of a float32 layer: K (pages, heads, head_dim, 16), V (pages, heads, 16, value_dim). V is empty for
    latents."""
    data: F32Array = layer.data.view(np.float32)
    shape, first = data.shape[:2], PAGE_TOKENS * layer.head_dim
    return data[..., :first].reshape(*shape, -1, PAGE_TOKENS), data[..., first:].reshape(*shape, PAGE_TOKENS, -1)


def _pairs(layer: KVLayer) -> tuple[U16Array, U16Array]:
    """Returns views of a bf16 layer: K (pages, heads, dim / 2, 16, 2), V (pages, heads, 8, dim, 2), with dims rounded
    up to even. V is empty for latents."""
    data = layer.data.view(np.uint16)
    shape, first = data.shape[:2], PAGE_TOKENS * (layer.head_dim + layer.head_dim % 2)
    keys = data[..., :first].reshape(*shape, -1, PAGE_TOKENS, 2)
    return keys, data[..., first:].reshape(*shape, PAGE_TOKENS // 2, -1, 2)


def _even(rows: U16Array) -> U16Array:
    """Returns rows (T, heads, dim) whose last axis is padded with a zero to an even size."""
    return np.pad(rows, ((0, 0), (0, 0), (0, rows.shape[-1] % 2)))


def _parts(layer: KVLayer) -> tuple[U8Array, U8Array, U16Array, U16Array]:
    """Returns views: K (pages, heads, quads, 16, 4), V (pages, heads, 4, columns, 4), and the scales of K and of V
    (pages, heads, 16).

    For a layer of latents V is empty, and the two scales are those of the latent and of the part of the key with rotary
    positions. Splitting the last axis of a slice never copies.
    """
    data = layer.data.view(np.uint8)
    head = data.shape[:2]
    at_values = PAGE_TOKENS * layer.kind.key_bytes(layer.head_dim)
    at_scales = at_values + (0 if layer.is_latent else PAGE_TOKENS * layer.kind.value_bytes(layer.value_dim))
    return (
        data[..., :at_values].reshape(*head, -1, PAGE_TOKENS, QUAD),
        data[..., at_values:at_scales].reshape(*head, PAGE_TOKENS // QUAD, -1, QUAD),
        data[..., at_scales : at_scales + SCALE_BYTES].view(np.uint16),
        data[..., at_scales + SCALE_BYTES :].view(np.uint16),
    )


def _key_bytes(kind: KVKind, q: NDArray[np.int8]) -> U8Array:
    """Packs whole numbers of K (..., head_dim) as bytes (..., quads, 4)."""
    if kind is KVKind.INT8:
        return _above(q, 128, QUAD).reshape(*q.shape[:-1], -1, QUAD)
    pairs = _above(q, 8, 2 * QUAD).reshape(*q.shape[:-1], -1, 2, QUAD)
    return pairs[..., 0, :] | pairs[..., 1, :] << np.uint8(4)


def _value_bytes(kind: KVKind, q: NDArray[np.int8]) -> U8Array:
    """Packs whole numbers of V (..., head_dim) as bytes (..., columns)."""
    if kind is KVKind.INT8:
        return q.view(np.uint8)
    halves = _above(q, 8, 32).reshape(*q.shape[:-1], -1, 2, 16)
    return (halves[..., 0, :] | halves[..., 1, :] << np.uint8(4)).reshape(*q.shape[:-1], -1)


def _above(q: NDArray[np.int8], offset: int, multiple: int) -> U8Array:
    """Returns q + offset, where q is padded with zeros to a multiple of `multiple` dimensions."""
    padding = [(0, 0)] * (q.ndim - 1) + [(0, -q.shape[-1] % multiple)]
    return (np.pad(q, padding).astype(np.int16) + offset).astype(np.uint8)


def _key_integers(kind: KVKind, keys: U8Array, head_dim: int) -> NDArray[np.int8]:
    """Unpacks bytes of K (pages, heads, quads, 16, 4) to whole numbers (pages, heads, 16, head_dim)."""
    parts = keys[..., None, :] if kind is KVKind.INT8 else np.stack((keys & 15, keys >> 4), axis=-2)
    rows = np.moveaxis(parts, 2, 3).reshape(*keys.shape[:2], PAGE_TOKENS, -1)[..., :head_dim]
    return (rows.astype(np.int16) - (128 if kind is KVKind.INT8 else 8)).astype(np.int8)


def _value_integers(kind: KVKind, values: U8Array, head_dim: int) -> NDArray[np.int8]:
    """Unpacks bytes of V (pages, heads, 4, columns, 4) to whole numbers (pages, heads, 16, head_dim)."""
    rows = values.swapaxes(-1, -2).reshape(*values.shape[:2], PAGE_TOKENS, -1)
    if kind is KVKind.INT8:
        return rows.view(np.int8)
    blocks = rows.reshape(*rows.shape[:3], -1, 16)
    full = np.stack((blocks & 15, blocks >> 4), axis=4).reshape(*rows.shape[:3], -1)
    return full[..., :head_dim].astype(np.int8) - np.int8(8)
