"""Chooses the replicas of a stream by predicted times: those that read its prompt, decode, and encode its images."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.distributed.fleet.images import with_encoder
from twostroke.distributed.fleet.moving import ReplicaPlacement, Sooner, place_split, place_whole
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing, prefix_keys
from twostroke.distributed.fleet.stream import FleetStream
from twostroke.types.images import keys_of


class Placer:
    """Chooses among replicas. router: predicts times, and remembers which replica has which pages. sooner: decides from
    predicted times whether two replicas share a request."""

    def __init__(self, page_tokens: int, router: LeastSeconds, sooner: Sooner) -> None:
        self.router = router
        self._page_tokens, self._sooner = page_tokens, sooner

    def asked(self, stream: FleetStream) -> Placing:
        """Returns what the router must know of a stream: its tokens so far, and the keys of its pages."""
        request = stream.request
        tokens = (*keys_of(request.prompt_token_ids, request.images), *stream.told)
        keys = prefix_keys(request.cache_salt, tokens, self._page_tokens)
        return Placing(len(tokens), keys, self._page_tokens)

    def chosen(
        self, stream: FleetStream, asked: Placing, members: Sequence[FleetMember], encoders: Sequence[FleetMember]
    ) -> ReplicaPlacement:
        """Returns the replicas for a stream. members: those that may compute it; at least one. encoders: those that
        encode images for others."""
        readers = [member for member in members if member.role == "prefill"]
        decoders = [member for member in members if member.role != "prefill"]
        if readers and decoders and stream.may_split:
            placed = place_split(asked, readers, decoders, self.router, self._sooner)
        else:
            placed = place_whole(asked, (readers if stream.stays_whole else decoders) or members, self.router)
        return with_encoder(placed, stream, asked, encoders, self.router, self._sooner)
