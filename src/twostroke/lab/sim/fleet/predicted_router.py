"""The router of production, which chooses among simulated replicas."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.shape import Segment
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing
from twostroke.distributed.wire.frames import ReplicaLoad
from twostroke.lab.sim.fleet.routing import Member, prefix_keys
from twostroke.lab.workload.request import WorkloadRequest

PREFILL_TOKENS = 256
"""A replica reports to its router how long one prompt token takes: the predicted seconds of a chunk of PREFILL_TOKENS
tokens, divided by PREFILL_TOKENS."""


class PredictedSeconds:
    """Chooses the replica on which a request costs the fewest predicted seconds. Satisfies Router.

    In production a router learns a replica's load from regular messages, so its knowledge is a little old. In this
    simulation it knows the load at the arrival of the request.
    """

    looks_inside = True

    def __init__(self) -> None:
        self._router = LeastSeconds()
        self._known: dict[Member, FleetMember] = {}
        self._token_s: dict[Member, float] = {}

    def choose(self, asked: WorkloadRequest, members: Sequence[Member]) -> Member:
        for member in [known for known in self._known if known not in members]:
            self._router.forget(self._known.pop(member))
        seen = {self._seen(member): member for member in members}
        keys = tuple(prefix_keys(asked.block_ids))
        placing = Placing(asked.prompt_tokens, keys, asked.block_tokens)
        chosen = self._router.rank(placing, list(seen))
        self._router.remember(placing, chosen)
        return seen[chosen]

    def _seen(self, member: Member) -> FleetMember:
        replica = member.replica
        known = self._known.get(member)
        if known is None:
            name = replica.name
            known = self._known[member] = FleetMember(name, name, replica.setup.limits.max_sequences)
            step_s = replica.setup.cost.predict([Segment.prefill(0, PREFILL_TOKENS, True)]).seconds
            self._token_s[member] = step_s / PREFILL_TOKENS
        gauges = replica.scheduler.gauges()
        known.streams = member.requests
        known.load = ReplicaLoad(
            running=gauges.running,
            waiting=member.requests - gauges.running,
            pages_free=gauges.pages_free,
            pages_used=gauges.pages_used,
            pages_cached=gauges.pages_cached,
            prefill_tokens=replica.unread_tokens,
            token_s=self._token_s[member],
            step_s=replica.last_step_s,
        )
        return known
