"""Serves the images of the requests that a front's replicas compute: sends pixels to replicas that ask for them, and
chooses the replica that encodes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twostroke.distributed.fleet.moving import ReplicaPlacement, Sooner, place_encode
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing
from twostroke.distributed.fleet.stream import FleetStream
from twostroke.distributed.wire.frames import Cancel, TileAsked, TileSent
from twostroke.distributed.wire.translate import wire_key


def tile_sent(stream: FleetStream | None, member: FleetMember, asked: TileAsked) -> TileSent:
    """Returns the answer to a replica that asks for a piece of an image's pixels. The piece is empty where the stream
    has ended or is at another replica. member: the replica that asks."""
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
    """Returns `placed`, the replica chosen to compute a request, with another replica that encodes the request's images
    where this is predicted to be sooner. Images whose rows the chosen replica has cached do not count."""
    if not (stream.request.images and encoders):
        return placed
    cached = max(router.cached_tokens(asked, each) for each in (placed.member, placed.source or placed.member))
    rows = stream.rows_after(cached)
    encoder = place_encode(rows, placed.member, encoders, sooner)
    return placed if encoder is None else replace(placed, encoder=encoder, encode_s=rows * encoder.image_row_s)


def encoded(stream: FleetStream) -> list[tuple[str, Cancel]]:
    """Forgets the replica that encodes images for this stream. Returns the Cancel frame for that replica; empty where
    no replica encodes."""
    encoder, number = stream.encode_replica, stream.number
    stream.encode_at(None, 0.0)
    return [] if encoder is None else [(encoder.name, Cancel(number))]
