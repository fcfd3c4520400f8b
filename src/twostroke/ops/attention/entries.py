"""Pages of entries (compressed KV). An entry is one vector that stands for several consecutive positions. It is key and
value of all heads at once.

An entry of rate m stands for m positions. It is written ("closes") at the last of them: the positions p with
(p + 1) % m == 0. It lies in the page of p. Entries have the page table of the positions and are shared with the same
prefixes. A page has ceil(16 / m) places. A cache of entries is declared as a LatentKV with `page_numbers` numbers for
each position, so that its pages have enough room for the entries. A page of a cache of `dim` numbers is

    entry i of the page    dim numbers one after the other: float32, bf16, int8 or int4. A byte holds q + 8
                           of two int4 numbers, the first in the low bits
    scales                 int8 and int4 alone: bf16, one for each entry. They begin after the room for all
                           16 * `page_numbers` numbers of the page
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.attention.kv_pages import quantize_rows
from twostroke.ops.operands import AttentionBatch, F32Array, KVLayer, U8Array, bf16_to_f32, f32_to_bf16
from twostroke.ops.program.values import LatentKV
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

MOST_NUMBERS = 2048
"""The largest number of elements that an entry may have."""


def entry_cache(dim: int, rate: int, window: int = 0) -> LatentKV:
    """Returns the kind of a cache that keeps an entry of `dim` numbers for every `rate` positions. window: how many
    positions the cache keeps; 0 for all.

    Raises ValueError for a `dim` or a `rate` that pages cannot hold.
    """
    if dim % 2 or not 2 <= dim <= MOST_NUMBERS or rate < 1:
        raise ValueError(f"pages cannot hold entries of {dim} numbers for {rate} positions")
    numbers = page_numbers(dim, rate)
    return LatentKV(1, numbers, window, numbers)


def page_numbers(dim: int, rate: int) -> int:
    """Returns how many elements for each of its 16 positions a page must have, so that its entries of `dim` elements
    fit. rate: how many positions one entry stands for."""
    return -(-places(rate) * dim // PAGE_TOKENS)


def places(rate: int) -> int:
    """Returns how many entries a page of 16 positions can hold. rate: how many positions one entry, a vector of
    compressed KV, stands for."""
    return -(-PAGE_TOKENS // rate)


def write_entries(layer: KVLayer, rows: F32Array, pages: NDArray[np.integer], at: NDArray[np.integer]) -> None:
    """Writes row t of `rows` (T, dim) float32 as the entry at[t] of page pages[t]."""
    for row, page, place in zip(rows, pages.tolist(), at.tolist(), strict=True):
        numbers, scales = _parts(layer, page, len(row))
        if not layer.kind.is_integer:
            numbers[place] = f32_to_bf16(row) if layer.kind is KVKind.BF16 else row
            continue
        (q,), (scales[place],) = quantize_rows(layer.kind, row[None])
        above = (q.astype(np.int16) + 8).astype(np.uint8)
        numbers[place] = above[::2] | above[1::2] << 4 if layer.kind is KVKind.INT4 else q.view(np.uint8)


def read_entry(layer: KVLayer, page: int, place: int, dim: int) -> F32Array:
    """Returns the entry at `place` of one page, as (dim,) float32."""
    numbers, scales = _parts(layer, page, dim)
    found = numbers[place]
    if layer.kind is KVKind.F32:
        return np.array(found, np.float32)
    if layer.kind is KVKind.BF16:
        return bf16_to_f32(found)
    q = np.stack((found & 15, found >> 4), -1).ravel().astype(np.int8) - 8 if layer.kind is KVKind.INT4 else found
    return q.view(np.int8).astype(np.float32) * bf16_to_f32(scales[place : place + 1])


def entries_seen(
    layer: KVLayer, batch: AttentionBatch, dim: int, rate: int, window: int = 0
) -> Iterator[tuple[int, int, F32Array]]:
    """Yields for each row of the step: the row, the number of the first entry that it sees, and the vectors (count,
    dim) of all entries that it sees. An entry stands for `rate` consecutive positions. A row at position p sees the
    entries whose last position is p or before. With a `window`, it sees only the last `window` of these."""
    for s, context in enumerate(batch.context_tokens.tolist()):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        for row in range(first, last):
            end = (context - (last - row) + 1) // rate
            begin = max(0, end - window) if window else 0
            closing = [entry * rate + rate - 1 for entry in range(begin, end)]
            found = [
                read_entry(layer, int(batch.page_table[s, p // PAGE_TOKENS]), p % PAGE_TOKENS // rate, dim)
                for p in closing
            ]
            yield row, begin, np.array(found, np.float32).reshape(-1, dim)


def _parts(layer: KVLayer, page: int, dim: int) -> tuple[NDArray[np.generic], NDArray[np.uint16]]:
    """Returns views of one page: the stored entries, and their scales. The entries have a row for each place of the
    page. A row has dim numbers, dim bytes (int8) or dim / 2 bytes (int4). Float pages have no scales."""
    data: U8Array = layer.data[page].reshape(-1).view(np.uint8)
    if not layer.kind.is_integer:
        own = data.view(np.uint16 if layer.kind is KVKind.BF16 else np.float32)
        return own[: len(own) // dim * dim].reshape(-1, dim), np.zeros(0, np.uint16)
    room, each = PAGE_TOKENS * layer.kind.key_bytes(layer.head_dim), dim // 2 if layer.kind is KVKind.INT4 else dim
    return data[: room // each * each].reshape(-1, each), data[room:].view(np.uint16)
