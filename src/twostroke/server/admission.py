"""Decides which requests are taken, how much of each is read, and how long it may last."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from twostroke.server.gate.body_budget import BODY_MEMORY_BYTES, BodyBudget, most_of_one_body
from twostroke.server.gate.door import Door
from twostroke.server.gate.image_desk import ImageDesk
from twostroke.server.gate.lanes import Lanes
from twostroke.server.gate.quarantine import Quarantine
from twostroke.server.gate.reach import Reach


class Limits(Struct, frozen=True):
    """Limits on single requests. The limits on all waiting requests together are in gate/door.py.

    deadline_s: the longest time from a request's arrival to the end of its answer; None for no limit. heartbeat_s: the
    silence on a stream after which a comment is sent. stalled_s: how long a client may read nothing of its answer
    before its request is dropped. crowded_s: how long it may read nothing before its request is paused, if the client's
    own buffer is full and other requests wait for a place. body_idle_s: the longest gap between two pieces of a
    request's body. body_s: the longest time for the whole body. header_s: the longest time until a request's headers
    are complete.
    """

    body_bytes: int = most_of_one_body(BODY_MEMORY_BYTES)
    deadline_s: float | None = None
    heartbeat_s: float = 15.0
    stalled_s: float = 30.0
    crowded_s: float = 0.25
    body_idle_s: float = 30.0
    body_s: float = 120.0
    header_s: float = 10.0


@dataclass(slots=True)
class Closing:
    """Tells running answers that the server ends. began: True when the server was asked to end; streams without an end
    of their own should end now."""

    began: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """The parts that decide which requests are taken. door: the bounds on waiting requests. bodies: the bounds on
    incoming bodies. lanes: the threads that read request bodies. desk: fetches and opens the images of requests.
    quarantine: the requests that were running when the engine crashed. drain_s: the seconds that running requests have
    to finish after a signal to end."""

    limits: Limits = field(default_factory=Limits)
    door: Door = field(default_factory=Door)
    bodies: BodyBudget = field(default_factory=BodyBudget)
    lanes: Lanes = field(default_factory=Lanes)
    desk: ImageDesk = field(default_factory=ImageDesk)
    quarantine: Quarantine = field(default_factory=Quarantine)
    drain_s: float = 30.0
    closing: Closing = field(default_factory=Closing)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may reach the server. reach: the names and origins under which proxies and browsers may reach it.
    loopback_only: accept only Host and Origin headers that name this machine (run() sets it from the address)."""

    api_key: str | None = None
    reach: Reach = field(default_factory=Reach)
    loopback_only: bool = True
