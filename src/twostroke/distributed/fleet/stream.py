"""One request of a front while it lives: its output so far, and at which replicas it was."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from twostroke.cost.history.account import LiveAccount, Phase
from twostroke.cost.history.stay import ReplicaStay, StayEnd
from twostroke.distributed.fleet.router import FleetMember
from twostroke.distributed.wire.frames import Refused, WirePrompt, WireStart, WireToken
from twostroke.types.request import Request
from twostroke.types.result import TokenLogprob

PART_OF = {Phase.QUEUED: "queue_s", Phase.FILLING: "own_s", Phase.DECODING: "decode_s", Phase.BACK: "recompute_s"}
"""Where the seconds of each phase are added to. BACK is the time without a token after a loss."""


@dataclass(eq=False, slots=True)
class FleetStream:
    """One request. account: its time so far, as the front sees it, and the replicas that had it.

    told: its output so far, as sent; memory: what its samplers know after it. number: the number of its
    present Assignment; 0 while it waits for a replica. sent_tokens: the tokens of its prompt, while its
    present replica has not begun it.
    party: the streams that one replica must compute, and that end together: the beams of a search, or this one alone.
    The first leads: it is placed, and its Assignment names the others.
    prompt_told: how many log probabilities of the prompt were sent. prompt_seen: how many came from the present
    Assignment.
    lost_on: instances of replicas that were lost while it ran on them; deaths: how many of these have ended.
    refused_by: replicas that refused it; refusal: the reason that the last one of them gave; retry_at_s: when the first
    one of them may take it. unpromised: replicas that could not promise its first token in time and may hold it.
    to_be_held: no replica can promise it, so it goes to one that may hold it until it can. held: that replica had to
    refuse it after all. stays_whole: it is decoded where its prompt is computed. decode_replica: the replica that will
    generate the rest; pages go there meanwhile, under the number of the present Assignment. encode_replica: the replica
    that encodes its images, under the same number; encode_s: the predicted seconds of that.
    """

    request: Request
    account: LiveAccount = field(init=False)
    told: list[int] = field(default_factory=list)
    memory: tuple[float, ...] = ()
    number: int = 0
    member: FleetMember | None = None
    sent_tokens: int = 0
    lost_on: set[str] = field(default_factory=set)
    deaths: int = 0
    refused_by: set[str] = field(default_factory=set)
    refusal: str = ""
    retry_at_s: float = math.inf
    unpromised: set[str] = field(default_factory=set)
    to_be_held: bool = False
    held: bool = False
    prompt_told: int = 0
    prompt_seen: int = 0
    stays_whole: bool = False
    decode_replica: FleetMember | None = None
    encode_replica: FleetMember | None = None
    encode_s: float = 0.0
    party: list[FleetStream] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.account = LiveAccount(self.request, mark_s=self.request.arrival_s)
        self.party.append(self)

    @property
    def handed(self) -> bool:
        """Did it come to its last replica from the one that computed its prompt?"""
        return len(self.account.stays) > 1 and self.account.stays[-2].end is StayEnd.HANDED

    @property
    def may_split(self) -> bool:
        """May two replicas compute its prompt and its output? Scores and vectors need every row of the prompt again."""
        return not (self.stays_whole or self.request.steered or self.request.wants_rows)

    def rows_after(self, num_tokens: int) -> int:
        """Image rows of the tiles that its prompt shows after so many tokens; each tile counts once."""
        tiles = {span.tile.key: span.tile.rows for span in self.request.images if span.end > num_tokens}
        return sum(tiles.values())

    def encode_at(self, encoder: FleetMember | None, seconds: float) -> None:
        """Its images are encoded there from now on, for so many predicted seconds; None: at its own replica alone."""
        if self.encode_replica is not None:
            self.encode_replica.sent_encode_s = max(0.0, self.encode_replica.sent_encode_s - self.encode_s)
        self.encode_replica, self.encode_s = encoder, seconds
        if encoder is not None:
            encoder.sent_encode_s += seconds

    def sent_to(self, member: FleetMember, number: int, now: float) -> None:
        """It is at `member` from now on."""
        self.number, self.member, self.prompt_seen = number, member, 0
        self.account.stays.append(ReplicaStay(member.name, member.instance, number, now, len(self.told)))
        member.streams += 1

    def expect(self, num_tokens: int) -> None:
        """Its present replica has this many tokens of it to compute, until it begins."""
        if self.member is not None:
            self.member.sent_tokens += num_tokens - self.sent_tokens
            self.sent_tokens = num_tokens

    def left(self, end: StayEnd, now: float) -> None:
        """It is at no replica any more."""
        if self.member is not None:
            self.expect(0)
            self.member.streams -= 1
            self.account.stays[-1].until_s, self.account.stays[-1].end = now, end
            if end is StayEnd.LOST and self.told:
                self._pass(Phase.BACK, now)
        self.member, self.number = None, 0

    def refuse(self, name: str, refused: Refused, usable: set[str], now: float) -> bool:
        """A replica has refused it. usable: the replicas that are there. -> may one of them still take it?

        Each is asked to promise its first token in time. Where none does, one that may hold it does so, until it can
        promise or must refuse; then the others are asked once more.
        """
        if refused.may_hold:
            self.unpromised.add(name)
            self.refusal = self.refusal or refused.message
        else:
            self.refused_by.add(name)
            self.refusal, self.to_be_held = refused.message, False
            self.retry_at_s = min(self.retry_at_s, now + (refused.retry_after_s or 0.0))
        left = usable - self.refused_by
        if left and not self.held and left <= self.unpromised:
            self.held = self.to_be_held = True
            self.unpromised.clear()
        return refused.retry_after_s is not None and not left <= self.unpromised

    def start(self, start: WireStart, now: float) -> None:
        """Its first step at the present replica. The first of all ends its queue time."""
        self.expect(0)
        account = self.account
        if account.first_s is None:
            account.first_s = min(now, account.stays[-1].since_s + start.queue_s)
            account.cached = account.computed = start.cached_tokens
            self._pass(Phase.FILLING, account.first_s)

    def new_logprobs(self, prompt: WirePrompt) -> tuple[TokenLogprob, ...]:
        """What was not sent yet of the prompt's log probabilities: another replica may have made the first ones."""
        new = prompt.logprobs[max(0, self.prompt_told - self.prompt_seen) :]
        self.prompt_seen += len(prompt.logprobs)
        self.prompt_told = max(self.prompt_told, self.prompt_seen)
        return new

    def take(self, token: WireToken, now: float) -> None:
        """The next output token."""
        self.told.append(token.token_id)
        self.memory = token.memory
        if self.account.phase is not Phase.DECODING:
            self._pass(Phase.DECODING, now)

    def end(self, now: float, with_token: bool) -> None:
        """The stream has ended. with_token: an end token ended it; this token has no event of its own."""
        self._pass(Phase.DECODING if with_token else self.account.phase, now)

    def _pass(self, phase: Phase, at_s: float) -> None:
        """Account for the seconds up to at_s as part of the present phase, and go over to the next one."""
        account, part = self.account, PART_OF[self.account.phase]
        setattr(account, part, getattr(account, part) + at_s - account.mark_s)
        account.mark_s, account.phase = at_s, phase
        if phase is Phase.DECODING and account.token_s is None:
            account.token_s, account.start = at_s, account.parts()
