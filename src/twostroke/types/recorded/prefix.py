"""Why a prompt was not found whole in the prefix cache."""

from __future__ import annotations

import enum

from msgspec import Struct


class MissReason(enum.StrEnum):
    """SHORT: only full pages are shared. EMPTY: nothing was cached. DIFFERS: the prompt departs from all cached ones.
    EVICTED: the page was cached before. UNFINISHED: another request was computing the page.

    SCORED: the request asks for log probabilities of its prompt, which must be computed whole. STATE: the prompt
    departs from a cached one at a place where no snapshot of the model's state was kept.
    """

    SHORT = "below a page"
    EMPTY = "nothing was cached"
    DIFFERS = "another prompt"
    EVICTED = "evicted"
    UNFINISHED = "still being computed"
    SCORED = "its log probabilities were asked for"
    STATE = "no state was kept there"


class PrefixMiss(Struct, frozen=True):
    """A prompt of which only a part, or nothing, was found in the prefix cache.

    position: the position of the first prompt token that was not found; with DIFFERS, the position where the prompt
    departs from the cached one.

    reason: why the search ended there. lost_tokens: the number of prompt tokens from there on that were lost for this
    reason, such as evicted ones; 0 where no more tokens could have been found. by: with UNFINISHED, the id of the
    request that was computing the page.
    """

    reason: MissReason
    position: int
    lost_tokens: int = 0
    by: str | None = None
