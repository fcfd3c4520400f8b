"""Replicas of a simulated fleet that encode images for the others. They are chosen as production's front chooses them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from twostroke.distributed.fleet.moving import place_encode
from twostroke.distributed.fleet.router import FleetMember
from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.lab.sim.fleet.routing import Member
from twostroke.lab.sim.fleet.transfer import Link, Traffic, send
from twostroke.lab.sim.images import SimulatedImages
from twostroke.types.request import Request


class Encoders:
    """The replicas that encode. Each encodes one image after the other. link: the link over which image rows are sent.
    traffic: counts what is sent."""

    def __init__(self, members: Sequence[Member], images: SimulatedImages, link: Link, traffic: Traffic) -> None:
        self._members, self._images, self._link, self._traffic = members, images, link, traffic
        self._free_s = {member.replica.name: 0.0 for member in members}

    def rows_there_s(self, request: Request, receiver: Member, at_s: float) -> float | None:
        """Returns the time at which the image rows of a request have arrived at `receiver`, the replica that computes
        the request; None where `receiver` encodes the images itself. at_s: the arrival time of the request."""
        tiles = [span.tile for span in request.images]
        rows, own_s = sum(tile.rows for tile in tiles), sum(map(self._images.cost.tile_s, tiles))
        if not rows:
            return None
        row_s, row_bytes = own_s / rows, self._images.row_bytes
        load = ReplicaLoad(running=receiver.requests, page_rate=self._link.bytes_per_s)
        there = FleetMember(receiver.replica.name, "", 1, load, image_row_s=row_s)
        found = {member.replica.name: member for member in self._members}
        known = []
        for name in found:
            left_s = max(0.0, self._free_s[name] - at_s)
            known.append(FleetMember(name, "", 1, sent_encode_s=left_s, image_row_s=row_s, image_row_bytes=row_bytes))
        chosen = place_encode(rows, there, known, operator.lt)
        if chosen is None:
            return None
        member = found[chosen.name]
        begin_s = max(at_s, self._free_s[chosen.name])
        self._free_s[chosen.name] = begin_s + own_s
        member.served += 1
        member.replica.busy_s += own_s
        return send(member, receiver, rows * row_bytes, begin_s + own_s, self._link, self._traffic)
