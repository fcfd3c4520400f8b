"""Predicts how long the queue of a front takes, for its Retry-After, from the loads that replicas report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.distributed.fleet.router import FleetMember
from twostroke.server.gate.door import UNKNOWN_WAIT_S
from twostroke.server.gate.forecast import TypicalAnswer

LEAST_S = 1e-6


class FleetForecast(TypicalAnswer):
    """Predicts how long requests at a front wait for their first token; `Door` uses this for Retry-After. members:
    returns the present replicas."""

    def __init__(self, members: Callable[[], Sequence[FleetMember]]) -> None:
        super().__init__()
        self._members = members

    def wait_s(self, requests: int, tokens: int) -> float:
        """Returns the seconds until this many waiting requests, with this many prompt tokens, have their first token.
        """
        members = [member for member in self._members() if not member.draining]
        if not members:
            return UNKNOWN_WAIT_S
        tokens_a_second = sum(1 / max(LEAST_S, member.load.token_s) for member in members)
        return max(tokens / tokens_a_second, self._places_s(requests, members))

    def _places_s(self, requests: int, members: Sequence[FleetMember]) -> float:
        """Returns the seconds until this many requests have a place in a batch. If S streams run and an answer has L
        tokens, S / L streams end in a step."""
        free = sum(max(0, each.max_sequences - each.load.running - each.load.waiting) for each in members)
        ends_a_second = sum(each.load.running / max(LEAST_S, each.load.step_s) for each in members) / self._typical
        return max(0, requests - free) / ends_a_second if ends_a_second else 0.0
