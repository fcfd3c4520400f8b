"""Decides where a prompt is computed, where its stream is decoded, and whether pages are moved, so that the predicted
time is least.

    whole   one replica does both; pages of another replica are moved there if that is sooner than computing them
    split   a replica that only computes prompts computes this prompt, and its pages go to another replica meanwhile
    encode  a replica that encodes for others makes a prompt's image rows, which go to the replica that computes it

In a split, the pages move while the prompt is computed, so only the rest of the moving costs time. On one replica, a
prompt or an encode delays the streams that decode there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing

USUAL_RATE = 100e6
"""The assumed rate in bytes a second for a replica that has received no pages yet: a network of 1 Gbit/s."""
GREETING_S = 0.005
"""The seconds that a question and its answer take, in addition to the transfer of their bytes."""
LAST_TOKENS = 64
"""The number of tokens in the pages of a prompt's last chunk. These pages can be sent only after the whole prompt is
computed. A replica that only computes prompts makes that chunk small; see engine/scheduler/limits/last_chunk.py."""

CACHED = Placing(1, (), 1)
"""A prompt whose tokens but the last are cached. With it, `first_s` predicts only how long a replica's queue is."""

Members = Sequence[FleetMember]
Sooner = Callable[[float, float], bool]
"""Called with two predictions in seconds: the time with the work divided between two replicas, and the time on one
replica. Returns whether to divide the work."""


@dataclass(frozen=True, slots=True)
class ReplicaPlacement:
    """The replicas that compute a request. member: the replica that computes the prompt. source: the replica whose
    pages of the prompt are moved to `member` first; None for none. decode_replica: the replica that generates the
    answer; None for `member`.

    encoder: the replica that encodes the prompt's images, in encode_s predicted seconds; None for `member`.
    """

    member: FleetMember
    source: FleetMember | None = None
    decode_replica: FleetMember | None = None
    encoder: FleetMember | None = None
    encode_s: float = 0.0


def place_whole(asked: Placing, members: Members, router: LeastSeconds) -> ReplicaPlacement:
    """Returns the best of `members` for the whole request. The placement has a source of cached pages where fetching
    them is faster than computing them."""
    member = router.rank(asked, members)
    source = max(members, key=lambda other: router.cached_tokens(asked, other))
    more = router.cached_tokens(asked, source) - router.cached_tokens(asked, member)
    gained_s = more * member.load.token_s - moving_s(more, asked.page_tokens, member)
    return ReplicaPlacement(member, source if gained_s > 0 else None)


def place_split(
    asked: Placing, readers: Members, decoders: Members, router: LeastSeconds, sooner: Sooner
) -> ReplicaPlacement:
    """Returns the placement of a request: either one replica computes the prompt and another decodes, or one replica
    does both.

    readers: the replicas that only compute prompts. decoders: the replicas that decode. Neither list is empty. sooner:
    decides from the predicted times whether two replicas share the work.
    """
    whole, reader = place_whole(asked, decoders, router), router.rank(asked, readers)

    def after_s(decoder: FleetMember) -> float:
        """Returns the seconds from the end of the prompt on the reader to this request's first step on the decoder: the
        decoder's queue, and the pages that are not sent by then."""
        missing, own_s = asked.num_tokens - router.cached_tokens(asked, decoder), router.own_s(asked, reader)
        last_s = moving_s(min(missing, LAST_TOKENS), asked.page_tokens, decoder)
        return router.first_s(CACHED, decoder) + max(last_s, moving_s(missing, asked.page_tokens, decoder) - own_s)

    decoder = min(decoders, key=after_s)
    whole_s = router.first_s(asked, whole.member) + whole.member.load.running * router.own_s(asked, whole.member)
    split_s = router.first_s(asked, reader) + after_s(decoder)
    return ReplicaPlacement(reader, None, decoder) if reader.page_bytes and sooner(split_s, whole_s) else whole


def place_encode(rows: int, member: FleetMember, encoders: Members, sooner: Sooner) -> FleetMember | None:
    """Returns the replica of `encoders` that should encode these image rows for `member`; None where `member` itself is
    sooner.

    An encode at `member` delays each stream that decodes there. Where no stream runs, the delay of one is counted,
    because a stream may come meanwhile.
    """
    if not rows or not encoders:
        return None
    encoder = min(encoders, key=_encodes_left_s)
    own_s, num_bytes = rows * member.image_row_s, rows * encoder.image_row_bytes
    moved_s = GREETING_S + num_bytes / (member.load.page_rate or USUAL_RATE)
    elsewhere_s = _encodes_left_s(encoder) + rows * encoder.image_row_s + moved_s
    here_s = own_s * (1 + max(1, member.load.running))
    return encoder if sooner(elsewhere_s, here_s) else None


def _encodes_left_s(encoder: FleetMember) -> float:
    """Returns the seconds of encodes that the encoder has left: the larger of its own report and of what was sent to
    it."""
    return max(encoder.load.encode_s, encoder.sent_encode_s)


def moving_s(num_tokens: int, page_tokens: int, target: FleetMember) -> float:
    """Returns the seconds until pages with `num_tokens` tokens are at `target`, at the rate that it has measured."""
    if not target.page_bytes:
        return math.inf
    return GREETING_S + num_tokens / page_tokens * target.page_bytes / (target.load.page_rate or USUAL_RATE)
