"""Images of a front's streams: pixels that replicas ask for, and the replica that encodes them for another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twostroke.distributed.fleet.moving import ReplicaPlacement, Sooner, place_encode
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing
from twostroke.distributed.fleet.stream import FleetStream
from twostroke.distributed.wire.frames import Cancel, TileAsked, TileSent
from twostroke.distributed.wire.translate import wire_key


def tile_sent(stream: FleetStream | None, member: FleetMember, asked: TileAsked) -> TileSent:
    """A piece of an image; nothing of it where the stream has ended or is elsewhere."""
    data = b""
    if stream is not None and member in (stream.member, stream.encode_replica):
        for span in stream.request.images:
            if wire_key(span.tile.key) == asked.key:
                data = span.tile.pixels[asked.first : asked.first + asked.count]
    return TileSent(asked.number, asked.key, asked.first, data)


def with_encoder(
    placed: ReplicaPlacement,
    stream: FleetStream,
    asked: Placing,
    encoders: Sequence[FleetMember],
    router: LeastSeconds,
    sooner: Sooner,
) -> ReplicaPlacement:
    """A placement in which images that the chosen replica does not know may be encoded elsewhere."""
    if not (stream.request.images and encoders):
        return placed
    cached = max(router.cached_tokens(asked, each) for each in (placed.member, placed.source or placed.member))
    rows = stream.rows_after(cached)
    encoder = place_encode(rows, placed.member, encoders, sooner)
    return placed if encoder is None else replace(placed, encoder=encoder, encode_s=rows * encoder.image_row_s)


def encoded(stream: FleetStream) -> list[tuple[str, Cancel]]:
    """Nothing more is encoded elsewhere for this stream: what its encoder is told."""
    encoder, number = stream.encode_replica, stream.number
    stream.encode_at(None, 0.0)
    return [] if encoder is None else [(encoder.name, Cancel(number))]
