"""Why a prompt was not found whole in the prefix cache."""

from __future__ import annotations

import enum

from msgspec import Struct


class MissReason(enum.StrEnum):
    """SHORT: only full pages are shared. EMPTY: nothing was cached. UNFINISHED: another request was computing it.

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
    """position: the first token of the prompt that was not found; with DIFFERS, where it departs from what is cached.

    lost_tokens: the prompt tokens that would have been found otherwise. by: the id of the request that was computing
    the page.
    """

    reason: MissReason
    position: int
    lost_tokens: int = 0
    by: str | None = None
