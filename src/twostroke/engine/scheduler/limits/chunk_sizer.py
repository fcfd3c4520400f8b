"""The largest chunk of a prompt that keeps a step under a bound of seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from twostroke.cost.shape import Segment

KEPT_SHARE = 0.97
"""The share of the allowed seconds that a step may be predicted to take; the rest is a reserve for time that a
prediction leaves out."""
FILLED_SHARE, AIM_SHARE = 0.95, 0.98
"""Shares of the allowed seconds of a step. The search for a chunk's size ends at a step of FILLED_SHARE or more; each
trial aims at AIM_SHARE."""
MIN_CHUNK_TOKENS = 32
"""The tokens that a step's first prefill always computes, whatever the bound."""
MAX_TRIALS = 6

Seconds = Callable[[Sequence[Segment]], float]


class Chunk(Struct, frozen=True):
    """A chunk of a prompt that fits into a step. num_tokens: the most tokens that were found to fit. seconds: the
    predicted time of the whole step. within: False when even the least chunk takes longer than allowed, and was chosen
    anyway."""

    num_tokens: int
    seconds: float
    within: bool


class ChunkSizer:
    """Finds the size of prompt chunks by predicted step times. A chunk ends at a multiple of align_tokens, or at the
    prompt's end.

    Every size that it allows was predicted to keep the step within the allowed seconds, or is the minimum. It needs
    three or four predictions where time is nearly linear in the chunk's size, and up to seven where the largest chunk
    that fits leaves much time unused. Eight is the most: the whole, the minimum, then up to six between them.
    """

    def __init__(self, seconds: Seconds, align_tokens: int) -> None:
        self._seconds = seconds
        self._align_tokens = align_tokens

    def chunk(
        self, base: Sequence[Segment], start: int, wanted: int, remaining: int, bound_s: float, adapter: int = -1
    ) -> Chunk:
        """Returns the largest chunk from `start` on, together with `base`, that keeps the step under bound_s; at least
        the minimum.

        adapter: the number of the sequence's adapter; -1 for none.
        """

        def seconds(num_tokens: int) -> float:
            return self._seconds([*base, Segment.prefill(start, num_tokens, num_tokens == remaining, adapter)])

        high, high_s = wanted, seconds(wanted)
        if high_s <= bound_s:
            return Chunk(wanted, high_s, True)
        least = self._aligned(start, MIN_CHUNK_TOKENS) or self._align_tokens - start % self._align_tokens
        least = min(wanted, least)
        low, low_s = least, seconds(least)
        if low_s > bound_s or least == wanted:
            return Chunk(least, low_s, low_s <= bound_s)
        for trial in range(MAX_TRIALS):
            if high - low <= self._align_tokens or low_s >= FILLED_SHARE * bound_s:
                break
            # Time is nearly linear in the chunk's size. Every other trial halves the interval, for the sizes where time
            # is not linear.
            share = 0.5 if trial % 2 else (AIM_SHARE * bound_s - low_s) / (high_s - low_s)
            middle = self._aligned(start, low + int((high - low) * min(0.95, max(0.05, share))))
            if middle <= low:
                middle = low + self._align_tokens
            if middle >= high:
                break
            middle_s = seconds(middle)
            if middle_s <= bound_s:
                low, low_s = middle, middle_s
            else:
                high, high_s = middle, middle_s
        return Chunk(low, low_s, True)

    def _aligned(self, start: int, num_tokens: int) -> int:
        """Returns the largest size of a chunk, at most num_tokens, that ends at a multiple of align_tokens in the
        prompt; 0 when there is none."""
        return max(0, num_tokens - (start + num_tokens) % self._align_tokens)
