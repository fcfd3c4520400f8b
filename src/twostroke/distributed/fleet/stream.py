"""The state of one request in the front (the API server) while it runs: its output so far, and the replicas that have
computed it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from twostroke.cost.history.account import DiskRead, LiveAccount, Phase
from twostroke.cost.history.stay import ReplicaStay, StayEnd
from twostroke.distributed.fleet.router import FleetMember
from twostroke.distributed.wire.frames import Refused, WirePrompt, WireStart, WireToken
from twostroke.types.request import Request
from twostroke.types.result import TokenLogprob

PART_OF = {Phase.QUEUED: "queue_s", Phase.FILLING: "own_s", Phase.DECODING: "decode_s", Phase.BACK: "recompute_s"}
"""The part of the account to which the seconds of each phase are added. BACK is the time from the loss of a replica to
the next token."""


@dataclass(eq=False, slots=True)
class FleetStream:
    """One request of the front (the API server), which sends it to a replica, and to another one when the first is lost
    or hands it over. account: where its time went so far.

    told: its output tokens that were sent to the client. memory: the state of its samplers after these tokens. number:
    the number of the Assignment frame that gave it to its present replica; 0 while no replica has it. sent_tokens: the
    number of tokens of its prompt, while its present replica has not begun the prompt.

    party: the streams that one replica must compute together, and that end together: the beams of a search, or this
    stream alone. The first of them is sent to a replica, and its Assignment names the others.

    prompt_told: the number of the prompt's log probabilities that were sent to the client. prompt_seen: the number of
    them that came from the present Assignment.

    lost_on: the instances of replicas whose connection was lost while they computed it. deaths: the number of these
    replicas whose process has ended. refused_by: replicas that refused it. refusal: the reason of the last refusal.
    retry_at_s: the earliest time at which one of these replicas may take it.

    unpromised: replicas that cannot promise its first token in time, but would queue it without a promise. to_be_held:
    whether the next replica may queue it without a promise, because no replica gives one. held: whether that was tried
    before; it is done once.

    stays_whole: whether one replica must compute both prompt and output. decode_replica: the replica that will generate
    the output; it fetches the prompt's pages meanwhile, under the number of the present Assignment. encode_replica: the
    replica that encodes its images, under the same number. encode_s: the predicted seconds of that encode.
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
        """True when the stream came to its present replica from another replica, which had computed its prompt."""
        return len(self.account.stays) > 1 and self.account.stays[-2].end is StayEnd.HANDED

    @property
    def may_split(self) -> bool:
        """True when one replica may compute the prompt and another may generate the output. Beam searches must stay on
        one replica. So must requests that need a result for each row of the prompt, such as scores and vectors."""
        return not (self.stays_whole or self.request.steered or self.request.wants_rows)

    def rows_after(self, num_tokens: int) -> int:
        """Returns the number of image rows that the prompt shows after its first `num_tokens` tokens. A tile that is
        shown twice counts once."""
        tiles = {span.tile.key: span.tile.rows for span in self.request.images if span.end > num_tokens}
        return sum(tiles.values())

    def encode_at(self, encoder: FleetMember | None, seconds: float) -> None:
        """Sets the replica that will encode the stream's images, and the predicted seconds. None: the replica that
        computes the stream encodes them."""
        if self.encode_replica is not None:
            self.encode_replica.sent_encode_s = max(0.0, self.encode_replica.sent_encode_s - self.encode_s)
        self.encode_replica, self.encode_s = encoder, seconds
        if encoder is not None:
            encoder.sent_encode_s += seconds

    def sent_to(self, member: FleetMember, number: int, now: float) -> None:
        """Notes that the stream was sent to the replica `member`. number: the number of the Assignment frame."""
        self.number, self.member, self.prompt_seen = number, member, 0
        self.account.stays.append(ReplicaStay(member.name, member.instance, number, now, len(self.told)))
        member.streams += 1

    def expect(self, num_tokens: int) -> None:
        """Sets how many prompt tokens the present replica has to compute before the stream's first step, as counted in
        the replica's `sent_tokens`."""
        if self.member is not None:
            self.member.sent_tokens += num_tokens - self.sent_tokens
            self.sent_tokens = num_tokens

    def left(self, end: StayEnd, now: float) -> None:
        """Notes that its replica does not compute the stream any more. end: the reason."""
        if self.member is not None:
            self.expect(0)
            self.member.streams -= 1
            self.account.stays[-1].until_s, self.account.stays[-1].end = now, end
            if end is StayEnd.LOST and self.told:
                self._pass(Phase.BACK, now)
        self.member, self.number = None, 0

    def refuse(self, name: str, refused: Refused, usable: set[str], now: float) -> bool:
        """Notes that a replica has refused the stream. usable: the names of the connected replicas. Returns whether a
        replica may still take the stream.

        Each replica is first asked to promise the first token in time. When all have refused this, one replica is asked
        to queue the stream without a promise. If it refuses too, the other replicas are asked for a promise once more.
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
        """Notes the stream's first step at the present replica. At the first replica that begins it, this step also
        ends the queue time."""
        self.expect(0)
        account = self.account
        if account.first_s is None:
            account.first_s = min(now, account.stays[-1].since_s + start.queue_s)
            account.cached = account.computed = start.cached_tokens
            account.disk = DiskRead(start.disk_tokens, start.disk_s)
            self._pass(Phase.FILLING, account.first_s)

    def new_logprobs(self, prompt: WirePrompt) -> tuple[TokenLogprob, ...]:
        """Returns the log probabilities of the prompt that the client does not have yet. When a replica was lost, the
        next one computes and sends all of them again, so the first ones are left out."""
        new = prompt.logprobs[max(0, self.prompt_told - self.prompt_seen) :]
        self.prompt_seen += len(prompt.logprobs)
        self.prompt_told = max(self.prompt_told, self.prompt_seen)
        return new

    def take(self, token: WireToken, now: float) -> None:
        """Takes the next output token."""
        self.told.append(token.token_id)
        self.memory = token.memory
        if self.account.phase is not Phase.DECODING:
            self._pass(Phase.DECODING, now)

    def end(self, now: float, with_token: bool) -> None:
        """Notes that the stream has ended. with_token: whether its last step sampled an end token, which is not sent to
        the client. The time of that step then counts as decoding."""
        self._pass(Phase.DECODING if with_token else self.account.phase, now)

    def _pass(self, phase: Phase, at_s: float) -> None:
        """Adds the seconds up to at_s to the account's part for the present phase, and begins the next phase."""
        account, part = self.account, PART_OF[self.account.phase]
        setattr(account, part, getattr(account, part) + at_s - account.mark_s)
        account.mark_s, account.phase = at_s, phase
        if phase is Phase.DECODING and account.token_s is None:
            account.token_s, account.start = at_s, account.parts()
