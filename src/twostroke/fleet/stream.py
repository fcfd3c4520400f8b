"""One request of a front while it lives: its output so far, and at which replicas it was.

Knows: the request, times as arguments.
Must not know: frames that are sent, which replica is chosen.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from twostroke.cost.history.account import LiveAccount, Phase
from twostroke.cost.history.stay import ReplicaStay, StayEnd
from twostroke.fleet.router import FleetMember
from twostroke.types.request import Request
from twostroke.types.result import TokenLogprob
from twostroke.wire.frames import Refused, WirePrompt, WireStart


class Search(enum.Enum):
    """PROMISE: a replica is looked for that promises its first token in time. HOLD: none does, and one may hold it
    until it can. AGAIN: that one had to refuse it after all, and the others are asked once more. NOTHING: no replica
    will ever take it."""

    PROMISE = 0
    HOLD = 1
    AGAIN = 2
    NOTHING = 3


@dataclass(eq=False, slots=True)
class FleetStream:
    """One request. account: its time so far, as the front sees it; BACK is the time without a token after a loss.

    told: its output so far, as sent. number: of its present Assignment; 0 while it waits for a replica.

    party: the streams that one replica must compute, and that end together: the beams of a search, or this one alone.
    The first leads: it is placed, and its Assignment names the others.
    prompt_told: log probabilities of the prompt that were sent; prompt_seen: of the present Assignment.
    lost_on: instances of replicas that were lost while it ran on them; deaths: how many of these have ended.
    search: see Search; refused_by: replicas that refused it; refusal: what the last one of them said; retry_at_s: when
    the first one of them may take it. unpromised: those that could not promise its first token in time and may hold it.
    handed: its present replica was to take it over; stays: it is decoded where its prompt is computed. heir: is to take
    it over; ahead: the number under which pages go there, or 0. visits: the replicas that had it; the last one has it.
    """

    request: Request
    account: LiveAccount = field(init=False)
    told: list[int] = field(default_factory=list)
    number: int = 0
    member: FleetMember | None = None
    lost_on: set[str] = field(default_factory=set)
    deaths: int = 0
    refused_by: set[str] = field(default_factory=set)
    refusal: str = ""
    retry_at_s: float = math.inf
    unpromised: set[str] = field(default_factory=set)
    search: Search = Search.PROMISE
    sent_s: float = 0.0
    sent_tokens: int = 0
    prompt_told: int = 0
    prompt_seen: int = 0
    handed: bool = False
    stays: bool = False
    heir: FleetMember | None = None
    ahead: int = 0
    party: list[FleetStream] = field(default_factory=list)
    visits: list[ReplicaStay] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.account = LiveAccount(self.request, mark_s=self.request.arrival_s)
        self.party.append(self)

    @property
    def leads(self) -> bool:
        """Is it the one of its party that is placed?"""
        return self.party[0] is self

    def sent_to(self, member: FleetMember, number: int, now: float) -> None:
        """It is at `member` from now on."""
        self.number, self.member, self.sent_s = number, member, now
        self.visits.append(ReplicaStay(member.name, member.instance, number, now, len(self.told)))

    def left(self, end: StayEnd, now: float) -> None:
        """It is at no replica any more."""
        if self.member is not None:
            self.visits[-1].until_s, self.visits[-1].end = now, end
            if end is StayEnd.LOST and self.told:
                self._pass(Phase.BACK, now)
        self.member, self.number = None, 0

    def refuse(self, name: str, refused: Refused, now: float) -> None:
        """A replica does not take it, whatever it would have to promise."""
        self.refused_by.add(name)
        self.refusal = refused.message
        if self.search is Search.HOLD:
            self.search = Search.AGAIN
        if refused.retry_after_s is None:
            self.search = Search.NOTHING
        else:
            self.retry_at_s = min(self.retry_at_s, now + refused.retry_after_s)

    def start(self, start: WireStart, now: float) -> None:
        """Its first step at the present replica. The first of all ends its queue time."""
        account = self.account
        if account.first_s is None:
            account.first_s = min(now, self.sent_s + start.queue_s)
            account.cached = account.computed = start.cached_tokens
            self._pass(Phase.FILLING, account.first_s)

    def new_logprobs(self, prompt: WirePrompt) -> tuple[TokenLogprob, ...]:
        """What was not sent yet of the prompt's log probabilities: another replica may have made the first ones."""
        new = prompt.logprobs[max(0, self.prompt_told - self.prompt_seen) :]
        self.prompt_seen += len(prompt.logprobs)
        self.prompt_told = max(self.prompt_told, self.prompt_seen)
        return new

    def take(self, token_id: int, now: float) -> None:
        """The next output token."""
        self.told.append(token_id)
        if self.account.phase is not Phase.DECODING:
            self._pass(Phase.DECODING, now)

    def end(self, now: float, with_token: bool) -> None:
        """It has ended. with_token: by an end token, which has no event of its own."""
        self._pass(Phase.DECODING if with_token else self.account.phase, now)

    def _pass(self, phase: Phase, at_s: float) -> None:
        """Account for the seconds up to at_s as part of the present phase, and go over to the next one."""
        account, seconds = self.account, at_s - self.account.mark_s
        if account.phase is Phase.QUEUED:
            account.queue_s += seconds
        elif account.phase is Phase.FILLING:
            account.own_s += seconds
        elif account.phase is Phase.DECODING:
            account.decode_s += seconds
        else:
            account.recompute_s += seconds
        account.mark_s, account.phase = at_s, phase
        if phase is Phase.DECODING and account.token_s is None:
            account.token_s, account.start = at_s, account.parts()
