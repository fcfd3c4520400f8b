"""Runs a front: the engine of an HTTP server whose requests are computed by replicas. It takes the replicas' messages
(frames) and returns pieces of answers. An event loop drives it by LoopEngine.

A front calls replicas at their addresses, again and again until they answer. A replica whose facts differ from the
first one's is refused with the difference. The list of addresses may change while the front runs.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.cost.explain.explanation import Explanation
from twostroke.distributed.cluster.arithmetic import difference
from twostroke.distributed.cluster.link import FrameLink, LinkLost
from twostroke.distributed.cluster.lookup import Lookup
from twostroke.distributed.cluster.records import RecordCalls
from twostroke.distributed.cluster.waker import Waker
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.fleet.router import FleetMember
from twostroke.distributed.wire.frames import Frame, RecordSent, ReplicaFacts, ReplicaLoad
from twostroke.engine.cache.page_group import PageState
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.engine.session import Session
from twostroke.types.errors import ConfigError
from twostroke.types.event import Event
from twostroke.types.output import Delta, Prompt

WAIT_S = 0.05
CALL_AGAIN_S = 0.3
CALL_S = 3.0
NOT_CALLED = "not called yet"
WAITS = "encodes for others, and no replica that computes requests is there yet"

Address = tuple[str, int]


def no_check() -> None:
    """Checks nothing, for a front whose replicas are not started by this process."""


@dataclass(eq=False, slots=True)
class _Caller:
    """The address of one replica, and the front's connection to it. state: a short text for people about the
    replica. try_at_s: the time of the next call. name: the name of the replica.

    told: the facts of a replica that only encodes images, which waits until a replica that computes requests has
    answered; None for every other replica.
    """

    address: Address
    lookup: Lookup | None = None
    link: FrameLink | None = None
    sock: socket.socket | None = None
    name: str = ""
    try_at_s: float = 0.0
    since_s: float = 0.0
    state: str = NOT_CALLED
    told: ReplicaFacts | None = None


class FrontStepper:
    """Does the work of a front: each `step` exchanges frames with the replicas, which compute the requests in place of
    a local engine. Only one thread at a time may use it. Satisfies PolledSteps.

    session: the object that takes the requests and makes the pieces of answers; it is set before the first `step`.
    facts: the facts of the first replica; those of all other replicas must be equal.
    """

    session: Session

    def __init__(
        self,
        addresses: Sequence[Address],
        page_tokens: int,
        secret: bytes,
        clock: Callable[[], float],
        report_fault: Callable[[BaseException], None],
        say: Callable[[str], None],
    ) -> None:
        self.clock, self.report_fault, self._say = clock, report_fault, say
        self._secret = secret
        self._addresses = addresses
        self._callers = [_Caller(address) for address in addresses]
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._early: list[Event] = []
        self._look_at_s = 0.0
        self._records = RecordCalls(self._waker.wake)
        self.facts: ReplicaFacts | None = None
        self.fleet = ReplicaFleet(page_tokens)

    def first_facts(self, timeout_s: float, check: Callable[[], None] = no_check) -> ReplicaFacts:
        """Calls replicas until one has answered, and returns its facts. Raises ConfigError with what is known of each
        address.

        check: a function that is called meanwhile; it raises where no replica will come.
        """
        begin_s = self.clock()
        while self.facts is None:
            check()
            if self.clock() - begin_s > timeout_s:
                found = "; ".join(f"{host}:{port}: {state}" for (host, port), state in self.states())
                raise ConfigError(
                    f"No replica answered in {timeout_s:g} s.", why=f"{found}.", fix="Start replicas there first."
                )
            self._exchange()
        return self.facts

    def look(self, timeout_s: float) -> list[dict[str, Any]]:
        """Calls replicas until all have answered or timeout_s is over. Returns what is known of each, for people."""
        until_s = self.clock() + timeout_s
        while len(self.fleet.members) < len(self._callers) and self.clock() < until_s:
            self._exchange()
        return self.replicas()

    def replicas(self) -> list[dict[str, Any]]:
        """Returns, for each replica's address, what is known of the replica, in words and numbers for the operator. Any
        thread may call it."""
        members = {member.name: member for member in self.fleet.members}
        return [_shown(caller, members.get(caller.name)) for caller in list(self._callers)]

    def states(self) -> list[tuple[Address, str]]:
        """Returns the address of each replica that the front calls, with what is known of the replica, in words."""
        return [(caller.address, caller.state) for caller in self._callers]

    @property
    def has_work(self) -> bool:
        """Always True: a front listens to its replicas even when they are idle."""
        return True

    def fileno(self) -> int:
        return self._selector.fileno()

    def gauges(self) -> Gauges:
        """Returns the sums over all replicas. Totals include replicas that have left. Requests without a replica count
        as waiting. Any thread may call it."""
        loads, counted = [member.load for member in self.fleet.members], self.fleet.totals.sum
        total: dict[str, Any] = {
            "running": sum(load.running for load in loads),
            "waiting": sum(load.waiting for load in loads) + self.fleet.num_waiting,
            "pages_free": sum(load.pages_free for load in loads),
            "pages_used": sum(load.pages_used for load in loads),
            "pages_cached": sum(load.pages_cached for load in loads),
            "waste_tokens": sum(load.waste_tokens for load in loads),
            "preemptions_total": counted.preemptions,
            "prefix_query_tokens": counted.query_tokens,
            "prefix_hit_tokens": counted.hit_tokens,
            "guesses": counted.guesses,
        }
        return Gauges(**total)

    def pages(self) -> bytes:
        """Returns a PageState for each page of all replicas: in use, then cached, then free."""
        gauges = self.gauges()
        counts = ((PageState.OWN, gauges.pages_used), (PageState.CACHED, gauges.pages_cached))
        return b"".join(bytes([state]) * count for state, count in (*counts, (PageState.FREE, gauges.pages_free)))

    def explain(self, name: str) -> list[Explanation]:
        """Explains where the time of an ended request went. It waits for replicas, so a thread other than the front's
        must call it."""
        return self._records.explain(self.fleet, name)

    def submit(self, prompt: Prompt, arrival_s: float | None = None) -> str:
        """Queues a prompt and returns its request id. Raises InvalidRequest, Overloaded."""
        name = self.session.submit(prompt, self.clock() if arrival_s is None else arrival_s)
        self._flush()
        return name

    def abort(self, request_id: str) -> list[Delta]:
        """Ends a request now and returns its last pieces."""
        deltas = self.session.abort(request_id, self.clock())
        self._flush()
        return deltas

    def poll(self) -> list[Delta]:
        """Handles the messages of replicas that have come, and returns the pieces of answers in them."""
        return self.step(0.0)

    def step(self, wait_s: float = WAIT_S) -> list[Delta]:
        """Waits for messages of replicas, handles them, and returns the pieces of answers in them."""
        self._exchange(wait_s)
        events, self._early = self._early, []
        deltas = self.session.consume(events, self.clock()) if events else []
        self._flush()
        return deltas

    def refuse_waiting(self, why: str, retry_after_s: float | None) -> None:
        """Ends all requests that no replica has, with the reason `why`."""
        self._early += self.fleet.refuse_waiting(why, retry_after_s, self.clock())
        self._waker.wake()

    def look_soon(self) -> None:
        """Makes the front read the list of replicas' addresses again at once, because the list has changed."""
        self._look_at_s = 0.0
        self._waker.wake()

    def forget_facts(self) -> None:
        """Forgets the facts of the replicas. All replicas have ended, and the next one may run another model."""
        self.facts = None

    def close(self) -> None:
        """Close the connections."""
        for caller in self._callers:
            self._hang_up(caller, "closed", self.clock())
        self._selector.close()
        self._waker.close()

    def _exchange(self, wait_s: float = WAIT_S) -> None:
        now = self.clock()
        looks = now >= self._look_at_s
        if looks:  # the calls run several times a second, not with every frame
            self._look_at_s = now + WAIT_S
            self._call_all(now)
        for key, events in self._selector.select(wait_s):
            if key.data is None:
                self._waker.clear()
            else:
                self._attend(key.data, events)
        if looks:
            self._end_silence()
        self._records.send(self.fleet)
        self._flush()

    def _call_all(self, now: float) -> None:
        """Calls the addresses that are not connected and whose next call is due."""
        self._follow_addresses()
        for caller in self._callers:
            if caller.sock is None and caller.link is None and now >= caller.try_at_s:
                self._call(caller, now)

    def _follow_addresses(self) -> None:
        """Drops addresses that have left the list and do not answer, and adds addresses that are new in the list."""
        wanted = list(self._addresses)
        if [caller.address for caller in self._callers] != wanted:
            kept = [each for each in self._callers if each.name or each.sock is not None or each.address in wanted]
            known = {caller.address for caller in kept}
            self._callers = kept + [_Caller(address) for address in wanted if address not in known]

    def _call(self, caller: _Caller, now: float) -> None:
        caller.lookup = caller.lookup or Lookup(*caller.address)
        try:
            if (found := caller.lookup.answer()) is None:
                return
            caller.lookup = None
            sock = socket.socket(*found[:3])
            sock.setblocking(False)
            sock.connect_ex(found[3])
            self._selector.register(sock, selectors.EVENT_WRITE, caller)
        except OSError as error:
            caller.lookup, caller.state, caller.try_at_s = None, f"cannot be called: {error}", now + CALL_AGAIN_S
            return
        caller.sock, caller.since_s = sock, now

    def _attend(self, caller: _Caller, events: int) -> None:
        now = self.clock()
        try:
            if caller.link is None:
                self._connected(caller)
                return
            for frame in caller.link.exchange(events):
                self._hear(caller, frame, now)
        except LinkLost as error:
            self._hang_up(caller, str(error), now)

    def _connected(self, caller: _Caller) -> None:
        if caller.sock is None:
            return
        error = caller.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise LinkLost(f"does not answer (error {error})")
        caller.link = FrameLink(caller.sock, self._secret, "front", "replica")
        self._selector.unregister(caller.sock)
        caller.link.watch(self._selector, caller)
        if caller.state == NOT_CALLED:  # else the reason for the loss stays until the replica is ready
            caller.state = "greeting"

    def _hear(self, caller: _Caller, frame: Frame, now: float) -> None:
        if isinstance(frame, ReplicaFacts):
            if caller.name or caller.told is not None:
                raise LinkLost("it sent its facts twice")
            self._greet(caller, frame, now)
        elif caller.name and isinstance(frame, RecordSent):
            self._records.came(caller.name, frame)
        elif caller.name:
            self._early += self.fleet.heard(caller.name, frame, now)

    def _greet(self, caller: _Caller, facts: ReplicaFacts, now: float) -> None:
        """Handles a replica that has sent its facts. All replicas must have the facts of the first one that computes
        requests. Replicas that only encode images join the fleet after it."""
        if self.facts is None:
            if facts.role == "encode":
                caller.told, caller.state = facts, WAITS
                return
            self.facts = facts
        self._join(caller, facts, self.facts, now)
        for other in self._callers:
            early, other.told = other.told, None
            try:
                if early is not None:
                    self._join(other, early, self.facts, now)
            except LinkLost as error:
                self._hang_up(other, str(error), now)

    def _join(self, caller: _Caller, facts: ReplicaFacts, first: ReplicaFacts, now: float) -> None:
        if found := difference(first, facts):
            raise LinkLost(f"it differs from the first replica in {found}")
        if any(member.name == facts.name for member in self.fleet.members):
            raise LinkLost(f"another replica is named {facts.name} already")
        caller.name, caller.state = facts.name, "ready"
        self._say(f"replica {facts.name} is ready")
        self._early += self.fleet.joined(facts, now, caller.address)

    def _end_silence(self) -> None:
        now = self.clock()
        silent = self.fleet.tick(now)
        for caller in self._callers:
            if caller.name and caller.name in silent:
                self._hang_up(caller, "said nothing for too long", now)
            elif caller.sock is not None and not caller.name and caller.told is None and now - caller.since_s > CALL_S:
                self._hang_up(caller, "did not finish its greeting", now)

    def _hang_up(self, caller: _Caller, why: str, now: float) -> None:
        if caller.link is not None:
            caller.link.close()
        elif caller.sock is not None:
            self._selector.unregister(caller.sock)
            caller.sock.close()
        name, caller.name = caller.name, ""
        caller.sock, caller.link, caller.told = None, None, None
        caller.state, caller.try_at_s = why, now + CALL_AGAIN_S
        if name:
            asked_to_end = self.fleet.holds
            self._say(f"replica {name} has ended" if asked_to_end else f"replica {name} is lost: {why}")
            self._records.lost(name)
            self.fleet.lost(name, now)

    def _flush(self) -> None:
        """Sends the frames of the fleet's outbox. A frame for a replica that is gone is dropped, because its streams
        have moved."""
        while self.fleet.outbox:
            name, frame = self.fleet.outbox.popleft()
            caller = next((each for each in self._callers if each.name == name and each.link is not None), None)
            if caller is None or caller.link is None:
                continue
            try:
                caller.link.send(frame)
            except LinkLost as error:
                self._hang_up(caller, str(error), self.clock())


def _shown(caller: _Caller, member: FleetMember | None) -> dict[str, Any]:
    """Returns what is known of one address, by name. pages: the pages of the whole pool. prompt_tokens: the tokens of
    prompts that are not computed yet. output_tokens: the tokens that the replica made for this front since it
    connected."""
    state, load = caller.state, ReplicaLoad() if member is None else member.load
    if member is not None:
        state = "draining" if member.draining else "silent" if member.suspect else state
    return {
        "name": caller.name,
        "address": f"{caller.address[0]}:{caller.address[1]}",
        "state": state,
        "role": "" if member is None else member.role,
        "running": load.running,
        "waiting": load.waiting,
        "pages_used": load.pages_used,
        "pages": load.pages_used + load.pages_cached + load.pages_free,
        "prompt_tokens": 0 if member is None else max(load.prefill_tokens, member.sent_tokens),
        "step_s": load.step_s,
        "output_tokens": 0 if member is None else member.output_tokens,
    }
