"""The arithmetic of memory before anything is loaded: whether a model fits, and how many tokens of KV cache fit next to
it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from twostroke.cost.cache_needs import CacheNeeds
from twostroke.types.cache_pools import CachePools
from twostroke.types.errors import OutOfMemory
from twostroke.types.spec.formats import PAGE_TOKENS

KEPT_FREE_SHARE = 0.10
"""Share of the available memory left for the rest of the machine, unless --kv-memory overrides this."""

LEAST_FREE_SHARE = KEPT_FREE_SHARE / 2
"""Share of the memory that was available at the start. While less is free, cached prefixes take no new memory."""

LEAST_TOKENS = 256
"""The fewest tokens that the caches must hold, unless --kv-memory overrides this."""

PROCESS_BYTES = 400_000_000
"""Memory of the process next to weights, pool, buffers and tables: interpreter, libraries, tokenizer, requests,
grammars. More may be held while a load lasts; this is what stays after it (heap.py)."""


class MemoryNeeds(Struct, frozen=True):
    """The bytes that a model needs. weight_bytes: the packed weights. buffer_bytes: activations and logits.
    table_bytes: tables of rotary positions and page tables, which grow with the context. process_bytes: the memory of
    the process itself. adapter_bytes: the memory reserved for adapters."""

    weight_bytes: int
    buffer_bytes: int
    caches: CacheNeeds
    table_bytes: int = 0
    process_bytes: int = 0
    adapter_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        """Bytes of everything but the caches."""
        return self.weight_bytes + self.buffer_bytes + self.table_bytes + self.process_bytes + self.adapter_bytes


class EncoderBytes(Struct, frozen=True):
    """The bytes of memory that an encoder of images takes. weights: its packed weights. buffers: the values of its
    largest step, its tables of rotary positions, and its pages of K and V."""

    weights: int
    buffers: int


class KVPlan(Struct, frozen=True):
    """The sizes of the KV pools. kv_bytes: the bytes of all pools. tokens: the positions of all sequences that run
    together. reason: why the pools have this size, in words."""

    pools: CachePools
    kv_bytes: int
    tokens: int
    reason: str


def plan_kv(needs: MemoryNeeds, available_bytes: int, asked_bytes: int | None, source: str = "") -> KVPlan:
    """Size the pools; raises OutOfMemory, with the figures, where weights and a few pages cannot fit.

    source: what limits the available memory, for messages.
    """
    caches, fixed_bytes = needs.caches, needs.fixed_bytes
    least = caches.least_pools()
    free_bytes = int(available_bytes * (1 - KEPT_FREE_SHARE)) - fixed_bytes
    if asked_bytes is not None:
        if asked_bytes < caches.bytes_of(least):
            raise _less_than_a_page(caches.bytes_of(least), asked_bytes)
        if asked_bytes + fixed_bytes > available_bytes:
            raise _too_big(needs, _available(available_bytes, source), asked_bytes)
        pools, reason = caches.pools(asked_bytes, bounded=False), "asked for"
    else:
        pools = caches.pools(max(0, free_bytes), bounded=True)
        reason = f"90% of {_gb(available_bytes)} available, less all else"
        if pools == caches.pools(2 * max(0, free_bytes), bounded=True):
            reason = "all sequences at full length fit"
    few = asked_bytes is None and caches.tokens(pools) < min(caches.context_tokens, LEAST_TOKENS)
    if few or not caches.holds(pools, least):
        least_bytes = max(caches.bytes_of(least), caches.sequence_bytes(LEAST_TOKENS))
        raise _too_big(needs, _available(available_bytes, source), asked_bytes or least_bytes)
    return KVPlan(pools, caches.bytes_of(pools), caches.tokens(pools), reason)


def _less_than_a_page(page_bytes: int, asked_bytes: int) -> OutOfMemory:
    return OutOfMemory(
        f"--kv-memory asks for {asked_bytes:,} byte{'s' * (asked_bytes != 1)}: less than one page of the KV cache.",
        why=f"A page holds {PAGE_TOKENS} tokens and takes {page_bytes:,} bytes. A number without a unit means bytes.",
        fix="Give a size with a unit, such as --kv-memory 2GB, or leave the option out.",
    )


def _available(available_bytes: int, source: str) -> str:
    return f"{_gb(available_bytes)} are available{f' ({source})' if source else ''}"


def require_room(needs: EncoderBytes, kept_bytes: int, available_bytes: int, source: str) -> None:
    """Raises OutOfMemory, with the figures, where an encoder and the image rows that it keeps do not fit."""
    parts = {
        "weights": needs.weights,
        "buffers": needs.buffers,
        "image rows": kept_bytes,
        "the process itself": PROCESS_BYTES,
    }
    total = sum(parts.values())
    if total > available_bytes:
        raise OutOfMemory(
            f"The encoder does not fit: it needs {_gb(total)}, {_available(available_bytes, source)}.",
            why=f"{_sum_of(parts)}.",
            fix="Use smaller weights (--weights int8), a smaller --image-cache or --image-tokens, or more memory.",
        )


def _too_big(needs: MemoryNeeds, available: str, kv_bytes: int) -> OutOfMemory:
    parts = {
        "weights": needs.weight_bytes,
        "buffers": needs.buffer_bytes,
        "tables for the context": needs.table_bytes,
        "adapters": needs.adapter_bytes,
        "the process itself": needs.process_bytes,
        "KV cache": kv_bytes,
    }
    return OutOfMemory(
        f"The model does not fit: it needs {_gb(needs.fixed_bytes + kv_bytes)}, {available}.",
        why=f"{_sum_of(parts)} ({needs.caches.token_bytes:,} bytes a token).",
        fix="Use smaller weights (--weights int4), a smaller --kv-memory or model, or more memory.",
    )


def _sum_of(parts: Mapping[str, int]) -> str:
    return " + ".join(f"{name} {_gb(size)}" for name, size in parts.items() if size)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e7 else f"{num_bytes / 1e6:.2f} MB"
