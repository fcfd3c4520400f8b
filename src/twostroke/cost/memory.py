"""Does it fit, and how many tokens of KV cache beside it? The arithmetic of memory, before anything is loaded.

Knows: byte counts.
Must not know: the machine's real memory (an argument), tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.errors import OutOfMemory

KEPT_FREE_SHARE = 0.10
"""Share of the available memory left for the rest of the machine, unless --kv-memory says otherwise."""

PROCESS_BYTES = 400_000_000
"""Of the process beside weights, pool, buffers and tables: interpreter, libraries, tokenizer, requests, grammars. More
may be held while a load lasts; this is what stays after it (heap.py)."""


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """weight_bytes: packed. buffer_bytes: activations and logits. kv_token_bytes: K and V of one position, all layers.

    context_tokens: the longest sequence. useful_tokens: more KV than this could never be filled. table_bytes: what
    grows with the context (rotations, page tables). process_bytes: of the process itself.
    """

    weight_bytes: int
    buffer_bytes: int
    kv_token_bytes: int
    context_tokens: int
    useful_tokens: int
    table_bytes: int = 0
    process_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        """All but the KV pool."""
        return self.weight_bytes + self.buffer_bytes + self.table_bytes + self.process_bytes


@dataclass(frozen=True, slots=True)
class KVPlan:
    """num_pages of PAGE_TOKENS positions, and the sentence that says why."""

    num_pages: int
    kv_bytes: int
    reason: str

    @property
    def tokens(self) -> int:
        """Positions the pool holds."""
        return self.num_pages * PAGE_TOKENS


def plan_kv(needs: MemoryNeeds, available_bytes: int, asked_bytes: int | None, source: str = "") -> KVPlan:
    """Size the KV pool; raises OutOfMemory, with the figures, where weights and one page per sequence cannot fit.

    source: what limits the available memory, for messages.
    """
    page_bytes = needs.kv_token_bytes * PAGE_TOKENS
    fixed_bytes = needs.fixed_bytes
    free_bytes = int(available_bytes * (1 - KEPT_FREE_SHARE)) - fixed_bytes
    if asked_bytes is not None:
        if asked_bytes < page_bytes:
            raise _less_than_a_page(page_bytes, asked_bytes)
        if asked_bytes + fixed_bytes > available_bytes:
            raise _too_big(needs, _available(available_bytes, source), asked_bytes)
        budget_bytes, reason = asked_bytes, "asked for"
    else:
        budget_bytes, reason = free_bytes, f"90% of {_gb(available_bytes)} available, less all else"
    useful_pages = -(-needs.useful_tokens // PAGE_TOKENS)
    num_pages = max(0, budget_bytes) // page_bytes
    if asked_bytes is None and num_pages > useful_pages:
        num_pages, reason = useful_pages, "all sequences at full length fit"
    if num_pages < 1 or (asked_bytes is None and num_pages * PAGE_TOKENS < min(needs.context_tokens, 256)):
        raise _too_big(needs, _available(available_bytes, source), asked_bytes or 256 * needs.kv_token_bytes)
    return KVPlan(num_pages, num_pages * page_bytes, reason)


def _less_than_a_page(page_bytes: int, asked_bytes: int) -> OutOfMemory:
    return OutOfMemory(
        f"--kv-memory asks for {asked_bytes:,} byte{'s' * (asked_bytes != 1)}: less than one page of the KV cache.",
        why=f"A page holds {PAGE_TOKENS} tokens and takes {page_bytes:,} bytes. A number without a unit means bytes.",
        fix="Give a size with a unit, such as --kv-memory 2GB, or leave the option out.",
    )


def _available(available_bytes: int, source: str) -> str:
    return f"{_gb(available_bytes)} are available{f' ({source})' if source else ''}"


def _too_big(needs: MemoryNeeds, available: str, kv_bytes: int) -> OutOfMemory:
    parts = {
        "weights": needs.weight_bytes,
        "buffers": needs.buffer_bytes,
        "tables for the context": needs.table_bytes,
        "the process itself": needs.process_bytes,
        "KV cache": kv_bytes,
    }
    return OutOfMemory(
        f"The model does not fit: it needs {_gb(needs.fixed_bytes + kv_bytes)}, {available}.",
        why=" + ".join(f"{name} {_gb(size)}" for name, size in parts.items() if size)
        + f" ({needs.kv_token_bytes:,} bytes a token).",
        fix="Use smaller weights (--weights int4), a smaller --kv-memory or model, or more memory.",
    )


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e7 else f"{num_bytes / 1e6:.2f} MB"
