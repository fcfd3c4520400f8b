"""Where a prompt is computed, where its stream is decoded, and whether pages are moved between: by predicted seconds.

    whole   one replica does both; pages that another one has are moved there where that is sooner than computing them
    split   a replica that only computes prompts computes this one, and its pages go to another one meanwhile

A split costs what of the moving is not hidden behind the computing. A whole prompt delays the streams beside it.

Knows: loads, what the router knows of caches.
Must not know: sockets, clocks, streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.fleet.router import FleetMember, LeastSeconds, Placing, predicted_s

USUAL_RATE = 100e6
"""Bytes a second, for a replica that no pages have come to yet: a network of 1 Gbit/s."""
GREETING_S = 0.005
"""Seconds that a question and its answer take beside the transfer of their bytes."""
LAST_TOKENS = 64
"""The tokens in the pages of a prompt's last chunk, which move after all computing is done. A replica that only reads
makes that chunk small; see scheduler/limits/last_chunk.py."""

Sooner = Callable[[float, float], bool]
"""(seconds of a split, seconds of the whole) -> should it be split?"""


@dataclass(frozen=True, slots=True)
class Placed:
    """member: computes the prompt. source: has pages of it that are moved to `member` first. heir: decodes."""

    member: FleetMember
    source: FleetMember | None = None
    heir: FleetMember | None = None


def place_whole(asked: Placing, members: Sequence[FleetMember], router: LeastSeconds) -> Placed:
    """The best of `members` for the whole request, with a source of pages to move there where that is faster."""
    member = router.rank(asked, members)
    return Placed(member, source_of(asked, member, members, router))


def place_split(
    asked: Placing,
    readers: Sequence[FleetMember],
    decoders: Sequence[FleetMember],
    router: LeastSeconds,
    sooner: Sooner,
) -> Placed:
    """readers: that only compute prompts. Neither list is empty."""
    whole, reader = place_whole(asked, decoders, router), router.rank(asked, readers)
    heir = min(decoders, key=lambda member: _queue_s(member) + _tail_s(asked, reader, member, router))
    own_s = (asked.num_tokens - router.cached_tokens(asked, whole.member)) * whole.member.load.token_s
    whole_s = _first_s(asked, whole.member, router) + whole.member.load.running * own_s
    split_s = _first_s(asked, reader, router) + _queue_s(heir) + _tail_s(asked, reader, heir, router)
    return Placed(reader, None, heir) if reader.page_bytes and sooner(split_s, whole_s) else whole


def source_of(
    asked: Placing, member: FleetMember, others: Sequence[FleetMember], router: LeastSeconds
) -> FleetMember | None:
    """The member whose pages should be moved to `member`; None where computing them there takes no longer."""
    here = router.cached_tokens(asked, member)
    best, gain_s = None, 0.0
    for other in others:
        more = router.cached_tokens(asked, other) - here
        if more > 0 and other is not member:
            gained_s = more * member.load.token_s - moving_s(more, asked.page_tokens, member)
            if gained_s > gain_s:
                best, gain_s = other, gained_s
    return best


def moving_s(num_tokens: int, page_tokens: int, target: FleetMember) -> float:
    """Seconds until pages with that many tokens are at `target`, at the rate that it has measured."""
    if not target.page_bytes:
        return math.inf
    return GREETING_S + num_tokens / page_tokens * target.page_bytes / (target.load.page_rate or USUAL_RATE)


def _first_s(asked: Placing, member: FleetMember, router: LeastSeconds) -> float:
    return predicted_s(asked, member, router.cached_tokens(asked, member))


def _queue_s(member: FleetMember) -> float:
    """Seconds until a prompt that is cached would have its first step."""
    return predicted_s(Placing(1, (), 1), member, 0)


def _tail_s(asked: Placing, reader: FleetMember, heir: FleetMember, router: LeastSeconds) -> float:
    """Seconds of the moving that are left after the prompt's last step."""
    missing = asked.num_tokens - router.cached_tokens(asked, heir)
    own_s = (asked.num_tokens - router.cached_tokens(asked, reader)) * reader.load.token_s
    last_s = moving_s(min(missing, LAST_TOKENS), asked.page_tokens, heir)
    return max(last_s, moving_s(missing, asked.page_tokens, heir) - own_s)
