"""The bounds on requests that wait: how many there may be, with how many prompt tokens, and how many of each API key.
No request may join while the server drains.

    ticket = door.enter(visit, num_completions, prompt_tokens); ticket.answered(); ticket.leave(output_tokens)

A completion counts as waiting from its arrival until its API call has its first token. All counting is done on one
event loop, between two awaits, so a bound holds whatever the engine's thread is doing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.gate.refusals import ToldToReturn, draining, key_limit, queue_full
from twostroke.server.visit import Visit

MINUTE_S = 60.0
UNKNOWN_WAIT_S = 2.0


class DoorRules(Struct, frozen=True):
    """The bounds on requests. queued_requests, queued_tokens: the most requests and prompt tokens that may wait for
    their first token. One call alone may exceed these bounds; otherwise it would never be served.

    key_requests: the most calls of one API key at a time. key_tokens: the most tokens of one key in a minute, prompt
    and output. None means no bound.
    """

    queued_requests: int = 1024
    queued_tokens: int = 1_000_000
    key_requests: int | None = None
    key_tokens: int | None = None


def unknown_wait(_requests: int, _tokens: int) -> float:
    """Returns the wait, in seconds, that a server without a cost model states."""
    return UNKNOWN_WAIT_S


@dataclass(slots=True)
class _Bucket:
    """The tokens that an API key may still use. It is refilled all the time, and is below zero after a long answer."""

    level: float
    at_s: float


@dataclass(eq=False)
class Door:
    """Counts the requests that wait or run, and refuses those beyond the bounds. wait_s(requests, tokens): returns the
    seconds until this many waiting requests and prompt tokens are served. ends_s(count): returns the seconds until this
    many running requests have ended; where it is None, wait_s is used.

    A refused call counts as waiting until the time at which it may try again. So each refused call is given a time of
    its own.
    """

    rules: DoorRules = field(default_factory=DoorRules)
    wait_s: Callable[[int, int], float] = unknown_wait
    ends_s: Callable[[int], float] | None = None
    clock: Callable[[], float] = time.monotonic
    queued_requests: int = 0
    queued_tokens: int = 0
    in_flight: int = 0
    draining: bool = False
    refusals: Counter[str] = field(default_factory=Counter)
    _of_sender: Counter[str] = field(default_factory=Counter)
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _told: dict[str, ToldToReturn] = field(default_factory=dict)

    def enter(self, visit: Visit, num_completions: int, prompt_tokens: int) -> Ticket:
        """Counts a call as waiting and returns its ticket. Raises HttpProblem: 503 or 429, with the time after which
        the client may try again."""
        problem = (
            self._drain_problem()
            or self._key_problem(visit, prompt_tokens)
            or self._queue_problem(num_completions, prompt_tokens)
        )
        if problem is not None:
            self.refusals[problem.code or ""] += 1
            raise HttpProblem(problem)
        self._charge(visit.sender, prompt_tokens)
        # No statement below can fail: each counted request gets a ticket.
        self.queued_requests += num_completions
        self.queued_tokens += prompt_tokens
        self.in_flight += 1
        self._of_sender[visit.sender] += 1
        return Ticket(self, visit.sender, num_completions, prompt_tokens)

    def _drain_problem(self) -> Problem | None:
        return draining() if self.draining else None

    def _key_problem(self, visit: Visit, prompt_tokens: int) -> Problem | None:
        most, rate = self.rules.key_requests, self.rules.key_tokens
        if most is not None and self._of_sender[visit.sender] >= most:
            return key_limit(f"{most} requests are running already", self._place_s(visit.sender))
        if rate is None:
            return None
        missing = min(prompt_tokens, rate) - self._refilled(visit.sender).level
        if missing <= 0:
            return None
        return key_limit(f"The {rate:,} tokens of this minute are used up", missing / rate * MINUTE_S)

    def _queue_problem(self, num_completions: int, prompt_tokens: int) -> Problem | None:
        if not self.queued_requests:
            return None
        requests_over = self.queued_requests + num_completions - self.rules.queued_requests
        tokens_over = self.queued_tokens + prompt_tokens - self.rules.queued_tokens
        if requests_over <= 0 and tokens_over <= 0:
            return None
        what = "requests" if requests_over > 0 else "prompt tokens"
        ahead_requests = min(max(0, requests_over), self.queued_requests)
        ahead_tokens = min(max(0, tokens_over), self.queued_tokens)
        told = self._told_of("")
        more_requests, more_tokens = told.ahead()
        wait_s = self.wait_s(ahead_requests + more_requests, ahead_tokens + more_tokens)
        told.tell(wait_s, num_completions, prompt_tokens)
        return queue_full(what, wait_s)

    def _place_s(self, sender: str) -> float:
        """Returns the seconds after which a refused call of an API key can be accepted. Calls of this key that were
        refused earlier are counted first."""
        told = self._told_of(f"key {sender}")
        count = 1 + told.ahead()[0]
        wait_s = self.wait_s(count, 0) if self.ends_s is None else self.ends_s(count)
        told.tell(wait_s, 1, 0)
        return wait_s

    def _told_of(self, queue: str) -> ToldToReturn:
        """Returns the record of the times at which the refused calls of a queue may try again. queue: "" for the whole
        server's queue, "key " and a key's label for the calls of one API key."""
        return self._told.setdefault(queue, ToldToReturn(self.clock))

    def _refilled(self, sender: str) -> _Bucket:
        rate, now = self.rules.key_tokens or 0, self.clock()
        bucket = self._buckets.setdefault(sender, _Bucket(rate, now))
        bucket.level = min(rate, bucket.level + (now - bucket.at_s) * rate / MINUTE_S)
        bucket.at_s = now
        return bucket

    def _charge(self, sender: str, tokens: int) -> None:
        if self.rules.key_tokens is not None:
            self._refilled(sender).level -= tokens

    def _leave(self, sender: str) -> None:
        self.in_flight -= 1
        self._of_sender[sender] -= 1
        if not self._of_sender[sender]:
            del self._of_sender[sender]


@dataclass(eq=False)
class Ticket:
    """An accepted call, as `Door` counts it: waiting until its first token, then running until it leaves."""

    door: Door
    sender: str
    num_completions: int
    prompt_tokens: int
    _waits: bool = True
    _inside: bool = True

    def answered(self) -> None:
        """Called at the first token: the call does not count as waiting any more."""
        if self._waits:
            self._waits = False
            self.door.queued_requests -= self.num_completions
            self.door.queued_tokens -= self.prompt_tokens

    def leave(self, output_tokens: int) -> None:
        """Called when the call has ended: charges its output tokens to its API key. A second call changes nothing."""
        if self._inside:
            self._inside = False
            self.answered()
            self.door._leave(self.sender)
            self.door._charge(self.sender, output_tokens)
