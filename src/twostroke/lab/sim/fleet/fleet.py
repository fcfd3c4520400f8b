"""Many replicas on one time line: arrivals, routers, transfers between pools, autoscaling.

    outcome = Fleet(FleetPlan(setup, replicas=4), LeastLoaded()).run(workload)

The same workload gives the same outcome on every machine.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from twostroke.lab.sim.fleet.autoscale import Autoscale, Autoscaler
from twostroke.lab.sim.fleet.encoders import Encoders
from twostroke.lab.sim.fleet.routing import LeastLoaded, Member, Router, State
from twostroke.lab.sim.fleet.timeline import Timeline
from twostroke.lab.sim.fleet.transfer import Link, Traffic, adopt, missing_tokens, send
from twostroke.lab.sim.observe import Notebook, Seen
from twostroke.lab.sim.predicted import invented_tokens
from twostroke.lab.sim.prompts import GREEDY, heart_request
from twostroke.lab.sim.replica import Replica, StepWatch
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.errors import ConfigError
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.request import Request

REFUSED = "longer than the context or the KV pool"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The replicas of a simulated fleet. replicas: the number that take requests. decoders: the number that decode;
    where there are some, the others only read prompts and send K and V to them. encoders: the number that encode images
    for the others (`--role encode`).

    autoscale: the rule by which replicas are started and ended, in place of `replicas`. A plan with both autoscale and
    decoders raises ConfigError. In a plan with decoders, only the replicas that read prompts have the setup's TTFT
    objective, and only the decoders have its ITL objective.
    """

    setup: ReplicaSetup
    replicas: int = 1
    decoders: int = 0
    link: Link = field(default_factory=lambda: Link(50e9))
    autoscale: Autoscale | None = None
    encoders: int = 0

    def __post_init__(self) -> None:
        if self.decoders and self.autoscale is not None:
            raise ConfigError("Split pools are not scaled automatically.", fix="Leave out decoders or autoscaling.")

    @property
    def reader_setup(self) -> ReplicaSetup:
        """The setup of the replicas to which requests go first. In split pools these replicas decode no streams, so
        they have no ITL objective."""
        if not self.decoders:
            return self.setup
        return replace(self.setup, promised=replace(self.setup.promised, itl_s=None))

    @property
    def decoder_setup(self) -> ReplicaSetup:
        """The setup of the replicas that only decode. They have no TTFT objective, because a request has its first
        token before it is moved to one of them."""
        return replace(self.setup, promised=replace(self.setup.promised, ttft_s=None))


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """The outcome of a run. seen: what each request experienced, in order of arrival. readers, decoders, encoders: all
    replicas that were ever started.

    end_s: the time at which the last request ended. scaling: pairs of a time and the number of replicas that are paid
    for from then on. recomputed_tokens: prompt tokens that decoders computed again although they had been sent, because
    they were evicted meanwhile.
    """

    seen: list[Seen]
    readers: list[Member]
    decoders: list[Member]
    end_s: float
    traffic: Traffic
    scaling: list[tuple[float, int]]
    recomputed_tokens: int
    encoders: list[Member] = field(default_factory=list)

    @property
    def members(self) -> list[Member]:
        """All replicas."""
        return self.readers + self.decoders + self.encoders

    @property
    def replica_s(self) -> float:
        """The seconds of all replicas from start to end, with starting and idle time: what an operator pays for."""
        return sum((self.end_s if member.to_s is None else member.to_s) - member.from_s for member in self.members)


class Fleet:
    """Runs a fleet of replicas once. watch: called with each step of each replica. Satisfies `Listener`."""

    def __init__(self, plan: FleetPlan, router: Router, watch: StepWatch | None = None, *, skips: bool = True) -> None:
        self._plan, self._router, self._watch, self._skips = plan, router, watch, skips
        self._decode_router = LeastLoaded()
        self._time = Timeline()
        self._by_replica: dict[Replica, Member] = {}
        self._scaler = None if plan.autoscale is None else Autoscaler(plan.autoscale)
        first = plan.replicas if plan.autoscale is None else plan.autoscale.low
        self._readers = [self._start(f"r{number}", plan.reader_setup, 0.0) for number in range(first)]
        self._decoders = [self._start(f"d{number}", plan.decoder_setup, 0.0) for number in range(plan.decoders)]
        self._encoding = [self._start(f"e{number}", plan.setup, 0.0) for number in range(plan.encoders)]
        self._notebook = Notebook()
        self._live: dict[str, tuple[int, WorkloadRequest]] = {}
        self._requests: Iterator[tuple[int, WorkloadRequest]] = iter(())
        self._until_s = math.inf
        self._arrivals_left = True
        self._closed = False
        self._traffic = Traffic()
        images = plan.setup.images
        self._encoders = None if images is None else Encoders(self._encoding, images, plan.link, self._traffic)
        self._scaling = [(0.0, first + plan.decoders + plan.encoders)]
        self._recomputed = 0
        self._end_s = 0.0

    def run(
        self, workload: Iterable[WorkloadRequest], users: int | None = None, until_s: float | None = None
    ) -> FleetOutcome:
        """Serves requests until the last has ended. Requests come at their own times, in ascending order, or in a
        closed loop of `users` users. In a closed loop each user asks the next question when the last is answered. No
        request comes after until_s."""
        self._requests = enumerate(workload)
        self._until_s = math.inf if until_s is None else until_s
        if users is None:
            self._expect_arrival()
        else:
            self._closed = True
            for _ in range(users):
                self._ask_next(0.0)
        if self._scaler is not None:
            self._time.at(self._scaler.rule.every_s, self._scale)
        self._time.run()
        seen = list(self._notebook.seen.values())
        rest = (self._end_s, self._traffic, self._scaling, self._recomputed)
        return FleetOutcome(seen, self._readers, self._decoders, *rest, self._encoding)

    def on_event(self, replica: Replica, event: Event) -> None:
        """Takes an event of a replica. Tokens are recorded at once. The end of a request is handled at its time on the
        fleet's time line; only then does the router learn of it."""
        if not isinstance(event, FinishedEvent):
            self._notebook.on_event(replica, event)
            return
        member, ended = self._by_replica[replica], event
        self._time.at(event.at_s, lambda _now_s: self._ended(member, ended))

    def on_run(self, replica: Replica, request: Request, times_s: array[float]) -> None:
        self._notebook.on_run(replica, request, times_s)

    def _expect_arrival(self) -> None:
        found = next(self._requests, None)
        if found is None or found[1].arrival_s > self._until_s:
            self._arrivals_left = False
            return

        def arrive(_now_s: float) -> None:
            self._arrive(*found)
            self._expect_arrival()

        self._time.at(found[1].arrival_s, arrive)

    def _ask_next(self, now_s: float) -> None:
        """Lets one user of a closed loop ask. A question that is refused is followed by the next at once."""
        for number, asked in self._requests if now_s <= self._until_s else ():
            if self._arrive(number, replace(asked, arrival_s=now_s)):
                return
        self._arrivals_left = False

    def _arrive(self, number: int, asked: WorkloadRequest) -> bool:
        """Routes a request. Returns False where it is refused."""
        name = str(number)
        seen = self._notebook.open(name, asked)
        if not self._plan.setup.can_serve(asked.prompt_tokens, asked.output_tokens):
            seen.error = REFUSED
            return False
        ready = [each for each in self._readers if each.state is State.READY]
        for each in ready if self._router.looks_inside else ():
            self._settle(each, asked.arrival_s)
        member = self._router.choose(asked, ready)
        images = self._plan.setup.images
        request = heart_request(asked, number, name, self._plan.setup.adapters)
        request = request if images is None else images.shown_by(request)
        self._live[name] = (number, asked)
        request = replace(request, max_tokens=min(1, request.max_tokens)) if self._decoders else request
        rows_s = None if self._encoders is None else self._encoders.rows_there_s(request, member, asked.arrival_s)
        if rows_s is None:
            self._submit(member, request)
        else:
            self._submit_with_rows(member, request, rows_s)
        return True

    def _submit_with_rows(self, member: Member, request: Request, rows_s: float) -> None:
        """Submits the request once its image rows (embeddings) have arrived, at rows_s."""
        member.requests += 1  # routers count the request from now on

        def deliver(now_s: float) -> None:
            member.requests -= 1
            self._settle(member, now_s)
            member.replica.take_rows(request)
            self._submit(member, replace(request, arrival_s=now_s))

        self._time.at(rows_s, deliver)

    def _submit(self, member: Member, request: Request) -> None:
        self._notebook.seen[request.request_id].where.append(member.replica.name)
        member.requests += 1
        member.served += 1
        member.replica.submit(request)
        self._time.expect(member.replica)

    def _ended(self, member: Member, event: FinishedEvent) -> None:
        number, asked = self._live[event.request_id]
        seen = self._notebook.seen[event.request_id]
        member.requests -= 1
        self._end_s = max(self._end_s, event.at_s)
        seen.ended_s = event.at_s
        seen.preemptions += event.num_preemptions
        seen.error = event.error or ""
        read_here = seen.where[-1] == seen.where[0]
        if read_here:
            seen.cached_tokens = event.num_cached_tokens
        else:
            page = self._plan.setup.page_tokens  # tokens after the last full page were not sent
            self._recomputed += (event.num_prompt_tokens - 1) // page * page - event.num_cached_tokens
        if read_here and self._decoders and asked.output_tokens > 1 and not seen.error:
            self._hand_over(number, asked, member, event.at_s)
            return
        del self._live[event.request_id]
        if member.state is State.DRAINING and member.requests == 0:
            self._end_member(member, event.at_s)
        if self._closed:
            self._ask_next(event.at_s)

    def _hand_over(self, number: int, asked: WorkloadRequest, sender: Member, at_s: float) -> None:
        """Hands over a request whose prompt has been read. Its K and V go to a decoder, which takes the request when
        they have arrived."""
        receiver = self._decode_router.choose(asked, self._decoders)
        read = heart_request(asked, number, str(number), self._plan.setup.adapters)
        request = replace(
            read,
            prompt_token_ids=read.prompt_token_ids + tuple(invented_tokens(read, 0, 1)),
            max_tokens=asked.output_tokens - 1,
            params=GREEDY,  # a prompt is scored on the replica that reads it
        )
        self._settle(receiver, at_s)
        sent_bytes = missing_tokens(receiver.replica.cache, request) * self._plan.setup.kv_token_bytes
        there_s = send(sender, receiver, sent_bytes, at_s, self._plan.link, self._traffic)
        receiver.requests += 1  # routers count the request from now on

        def deliver(now_s: float) -> None:
            receiver.requests -= 1
            self._settle(receiver, now_s)
            adopt(receiver.replica.cache, request)
            self._submit(receiver, replace(request, arrival_s=now_s))

        self._time.at(there_s, deliver)

    def _settle(self, member: Member, at_s: float) -> None:
        member.replica.settle(at_s)
        self._time.expect(member.replica)

    def _start(self, name: str, setup: ReplicaSetup, now_s: float) -> Member:
        replica = Replica(name, setup, self, self._watch, skips=self._skips)
        member = Member(replica, from_s=now_s)
        self._by_replica[replica] = member
        return member

    def _scale(self, now_s: float) -> None:
        """Starts or drains replicas as the load demands."""
        if self._scaler is None or not (self._arrivals_left or self._live):
            return
        self._time.at(now_s + self._scaler.rule.every_s, self._scale)
        staying = [each for each in self._readers if each.state in (State.STARTING, State.READY)]
        wanted = self._scaler.wanted(len(self._live), len(staying), now_s)
        for _ in range(wanted - len(staying)):
            self._start_later(now_s, self._scaler.rule.start_s)
        if wanted < len(staying):
            ready = [each for each in staying if each.state is State.READY]
            if len(ready) > self._scaler.rule.low:  # replicas that are starting do not serve yet
                self._drain(min(reversed(ready), key=lambda member: member.requests), now_s)

    def _start_later(self, now_s: float, start_s: float) -> None:
        member = self._start(f"r{len(self._readers)}", self._plan.reader_setup, now_s)
        member.state = State.STARTING
        self._readers.append(member)
        self._count_paid(now_s)

        def begin(_now_s: float) -> None:
            member.state = State.READY

        self._time.at(now_s + start_s, begin)

    def _drain(self, member: Member, now_s: float) -> None:
        member.state = State.DRAINING
        if member.requests == 0:
            self._end_member(member, now_s)

    def _end_member(self, member: Member, now_s: float) -> None:
        member.state, member.to_s = State.ENDED, now_s
        self._count_paid(now_s)

    def _count_paid(self, now_s: float) -> None:
        self._scaling.append((now_s, sum(each.to_s is None for each in self._readers)))
