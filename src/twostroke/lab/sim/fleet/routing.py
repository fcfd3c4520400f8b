"""Chooses the replica for a request: round robin, least loaded, prefix affinity."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twostroke.lab.sim.replica import Replica
from twostroke.lab.workload.request import WorkloadRequest

REMEMBERED_BLOCKS = 1_000_000
REMEMBERED_REPLICAS = 64
SLACK_REQUESTS, SLACK_FACTOR = 2, 1.5


class State(enum.Enum):
    """The state of a replica. STARTING and DRAINING replicas are paid for and get no requests."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class Member:
    """A replica as its router sees it. requests: the number of requests that were sent to it and have not ended.
    served: the number of all requests that were sent to it.

    from_s, to_s: when it was started and ended. out_free_s, in_free_s: when its network link is free again.
    """

    replica: Replica
    from_s: float = 0.0
    to_s: float | None = None
    state: State = State.READY
    requests: int = 0
    served: int = 0
    out_free_s: float = 0.0
    in_free_s: float = 0.0


class Router(Protocol):
    """Chooses replicas. It is deterministic: the same requests in the same order go the same way.

    looks_inside: whether the router asks replicas for their load. If so, the fleet first simulates all replicas up to
    the arrival time of the request that is to be routed.
    """

    looks_inside: bool

    def choose(self, asked: WorkloadRequest, members: Sequence[Member]) -> Member:
        """Returns one of the members. There is at least one; they are in order of their start."""


class RoundRobin:
    """Chooses each replica in turn. Satisfies `Router`."""

    looks_inside = False

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, asked: WorkloadRequest, members: Sequence[Member]) -> Member:
        self._turn += 1
        return members[(self._turn - 1) % len(members)]


class LeastLoaded:
    """Chooses the replica with the fewest requests; of several such replicas, the first. Satisfies `Router`."""

    looks_inside = False

    def choose(self, asked: WorkloadRequest, members: Sequence[Member]) -> Member:
        return min(members, key=lambda member: member.requests)


class PrefixAffinity:
    """Chooses the least loaded of the replicas that were sent the longest beginning of this prompt. If that replica has
    far more requests than others, chooses the least loaded replica of all.

    Far more means more than 1.5 times the requests of the least loaded replica, plus 2. The router remembers the last
    million blocks, and the last 64 replicas of each block. Satisfies `Router`.
    """

    looks_inside = False

    def __init__(self, remembered: int = REMEMBERED_BLOCKS) -> None:
        self._remembered = remembered
        self._places: OrderedDict[int, tuple[Member, ...]] = OrderedDict()

    def choose(self, asked: WorkloadRequest, members: Sequence[Member]) -> Member:
        keys = prefix_keys(asked.block_ids)
        chosen = least = min(members, key=lambda member: member.requests)
        for key in reversed(keys):
            known = [member for member in self._places.get(key, ()) if member.state is State.READY]
            if known:
                chosen = min(known, key=lambda member: member.requests)
                break
        if chosen.requests > SLACK_FACTOR * least.requests + SLACK_REQUESTS:
            chosen = least
        for key in keys:
            before = self._places.get(key, ())
            if chosen not in before:
                before = (*before, chosen)[-REMEMBERED_REPLICAS:]
            self._places[key] = before
            self._places.move_to_end(key)
        while len(self._places) > self._remembered:
            self._places.popitem(last=False)
        return chosen


def prefix_keys(block_ids: Sequence[int]) -> list[int]:
    """Returns one key for each beginning of the prompt; equal keys mean equal beginnings."""
    keys: list[int] = []
    for block_id in block_ids:
        keys.append(hash((keys[-1] if keys else 0, block_id)))  # the hash of integers is the same in every process
    return keys
