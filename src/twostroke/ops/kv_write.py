"""kv_write: put K and V of new positions into their pages.

    k, v (T, kv_heads, head_dim) float32, possibly strided with contiguous last two axes; slots (T,) int32 =
    page * PAGE_TOKENS + offset. bf16 layers round to nearest, ties to even.

Knows: the contract, the reference, the cost. Must not know: implementations, why these pages.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.operands import F32Array, I32Array, KVLayer, f32_to_bf16
from twostroke.spec.formats import PAGE_TOKENS, KVKind


def reference(layer: KVLayer, k: F32Array, v: F32Array, slots: I32Array) -> None:
    """See the module. Raises IndexError for a slot outside the pool."""
    if slots.size and (int(slots.min()) < 0 or int(slots.max()) >= layer.num_pages * PAGE_TOKENS):
        raise IndexError("KV slot outside the pool")
    pages, offsets = slots // PAGE_TOKENS, slots % PAGE_TOKENS
    cast = f32_to_bf16 if layer.kind is KVKind.BF16 else lambda values: values
    keys = layer.data[:, :, 0].reshape(layer.num_pages, layer.kv_heads, layer.head_dim, PAGE_TOKENS)
    values = layer.data[:, :, 1].reshape(layer.num_pages, layer.kv_heads, PAGE_TOKENS, layer.head_dim)
    for row, (page, offset) in enumerate(zip(pages, offsets, strict=True)):
        keys[page, :, :, offset] = cast(k[row])
        values[page, :, offset, :] = cast(v[row])
        layer.data[page, :, 0] = keys[page].reshape(layer.kv_heads, -1)
        layer.data[page, :, 1] = values[page].reshape(layer.kv_heads, -1)


def cost(layer: KVLayer, k: F32Array, v: F32Array, slots: I32Array) -> Work:
    """K and V read as float32, written in the layer's format."""
    elements = k.size + v.size
    return Work(0, kv_bytes=elements * layer.kind.element_bytes, activation_bytes=4 * elements)
