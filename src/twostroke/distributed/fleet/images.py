"""Serves the images of a front's streams: the pixels that replicas ask for, and the choice of a replica that encodes
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twostroke.distributed.fleet.moving import ReplicaPlacement, Sooner, place_encode
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing
from twostroke.distributed.fleet.stream import FleetStream
from twostroke.distributed.wire.frames import Cancel, TileAsked, TileSent
from twostroke.distributed.wire.translate import wire_key


def tile_sent(stream: FleetStream | None, member: FleetMember, asked: TileAsked) -> TileSent:
    """Returns a piece of an image; an empty piece where the stream has ended or is at another replica."""
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
    """Returns `placed`. If another replica encodes the images that the chosen replica has not cached sooner than the
    chosen replica does, the result names that replica as encoder."""
    if not (stream.request.images and encoders):
        return placed
    cached = max(router.cached_tokens(asked, each) for each in (placed.member, placed.source or placed.member))
    rows = stream.rows_after(cached)
    encoder = place_encode(rows, placed.member, encoders, sooner)
    return placed if encoder is None else replace(placed, encoder=encoder, encode_s=rows * encoder.image_row_s)


def encoded(stream: FleetStream) -> list[tuple[str, Cancel]]:
    """Ends the encoding at another replica for this stream. Returns the Cancel frame for its encoder, if it has one."""
    encoder, number = stream.encode_replica, stream.number
    stream.encode_at(None, 0.0)
    return [] if encoder is None else [(encoder.name, Cancel(number))]
