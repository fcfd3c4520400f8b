"""The account of one completion, while it runs and after it has ended."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from msgspec import Struct, field, structs

from twostroke.cost.history.record import RequestRecord
from twostroke.cost.history.running_sums import Sums
from twostroke.cost.history.stay import ReplicaStay
from twostroke.cost.shape import Segment
from twostroke.types.plan import Hold
from twostroke.types.recorded.parts import TimeParts
from twostroke.types.recorded.prefix import PrefixMiss
from twostroke.types.request import FinishReason, Request

MAX_SHARES = 12
"""How many other completions an account names at most in one list of shares: those whose prefill took the most time."""


class Phase(enum.Enum):
    """The phase of a completion. QUEUED: it was never planned. FILLING: its prompt is computed, or after a preemption
    its prompt and output again. DECODING: one position is computed in each step. BACK: it was preempted, and waits
    until it is planned again."""

    QUEUED = 0
    FILLING = 1
    DECODING = 2
    BACK = 3


@dataclass(frozen=True, slots=True)
class Share:
    """The time that the prefill of one other completion (`request_id`) added to this one, in num_steps steps.
    longest_s: the most that one of these steps added.

    longest_at: the gap between tokens in which that step was; 1 is the gap after the first token.
    """

    request_id: str
    seconds: float
    num_steps: int
    num_tokens: int
    longest_s: float
    longest_at: int = 0


class QueueStory(Struct, frozen=True):
    """Why a completion waited in the queue.

    num_running, num_ahead: the completions that ran, and that waited before it, when it came. behind: the completions
    whose prefill went on meanwhile, the longest first. ended: the completions that ended meanwhile, the oldest first.
    hold: the reason that kept requests in the queue for the longest time; None where there was none.
    """

    num_running: int = 0
    num_ahead: int = 0
    hold: Hold | None = None
    behind: tuple[Share, ...] = ()
    ended: tuple[str, ...] = ()


class PreemptionSpan(Struct, frozen=True):
    """One preemption: the completion gave its pages back at from_s and was planned again at until_s; None where it
    never was.

    by: the completion that it was preempted for. If it ran out of pages itself, `by` is the completion that held most
    pages, and found_none is True.
    """

    by: str
    from_s: float
    until_s: float | None = None
    found_none: bool = False


class Delays(Struct, frozen=True):
    """Seconds of a completion's steps in which the processor ran other programs. start_s: up to the first token.
    stream_s: after it."""

    start_s: float = 0.0
    stream_s: float = 0.0


class DiskRead(Struct, frozen=True):
    """Prompt tokens that were read from a disk instead of computed, and the seconds that the completion waited for
    them before its first step."""

    tokens: int = 0
    seconds: float = 0.0


class EncodeCounts(Struct, frozen=True):
    """How the images of a completion were computed. pieces: the pieces in which they were encoded. steps: the steps
    that had such a piece.

    span_pieces: the pieces in which the image rows went through the language model. span_steps: the steps that had such
    a piece.
    """

    pieces: int = 0
    steps: int = 0
    span_pieces: int = 0
    span_steps: int = 0


class GuessCounts(Struct, frozen=True):
    """How often the guesses for a completion were right. guessed: the tokens that were guessed and verified. accepted:
    those that were right. steps: the steps that verified some."""

    guessed: int = 0
    accepted: int = 0
    steps: int = 0

    def with_step(self, guessed: int, accepted: int) -> GuessCounts:
        """The counts after one more step."""
        return GuessCounts(self.guessed + guessed, self.accepted + accepted, self.steps + 1)


class LiveAccount(Struct, eq=False):
    """The account of a completion that has not ended; its seconds are those so far.

    mark_s: while the prompt is computed, the time up to which seconds are counted already. While the completion waits
    to be planned, the time at which the wait began. sums: the sums of all steps' seconds at the time when the
    completion began to decode. high: the most positions that were computed before a preemption. stays: the times at the
    replicas of a front, in order; the last one may still go on.
    """

    request: Request
    phase: Phase = Phase.QUEUED
    mark_s: float = 0.0
    queue_s: float = 0.0
    encode_s: float = 0.0
    own_s: float = 0.0
    others_s: float = 0.0
    decode_s: float = 0.0
    back_s: float = 0.0
    recompute_s: float = 0.0
    host_s: float = 0.0
    stall_s: float = 0.0
    sums: Sums = field(default_factory=Sums)
    high: int = 0
    computed: int = 0  # positions at the last plan before the request decoded
    cached: int = 0  # positions found in the prefix tree at first admission
    num_running: int = 0
    num_ahead: int = 0
    first_s: float | None = None
    first_ordinal: int = 0
    token_s: float | None = None
    token_ordinal: int = 0
    start: TimeParts | None = None
    queue: QueueStory = field(default_factory=QueueStory)
    spells: list[PreemptionSpan] = field(default_factory=list)
    guesses: GuessCounts = GuessCounts()
    encodes: EncodeCounts = EncodeCounts()
    disk: DiskRead = DiskRead()
    stays: list[ReplicaStay] = field(default_factory=list)
    delayed_before_s: float = 0.0  # the ledger's sum of delays at the first plan; delayed_token_s: at the first token
    delayed_token_s: float = 0.0

    def add_encode(self, seconds: float, pieces: int) -> None:
        """Counts pieces of the completion's images that one step encoded. Their seconds count only while the completion
        waits in the queue."""
        counts = self.encodes
        self.encodes = structs.replace(counts, pieces=counts.pieces + pieces, steps=counts.steps + 1)
        if self.phase is Phase.QUEUED:
            self.encode_s += seconds

    def add_span(self, pieces: int) -> None:
        """Counts pieces in which a step computed the completion's image rows in the language model."""
        counts, steps = self.encodes, self.encodes.span_steps + 1
        self.encodes = structs.replace(counts, span_pieces=counts.span_pieces + pieces, span_steps=steps)

    def add_own(self, seconds: float, again_s: float = 0.0) -> None:
        """Adds seconds in which the completion's own prompt was computed. again_s: the part of them for positions that
        had been computed before a preemption."""
        self.recompute_s += again_s
        if self.token_s is None:
            self.own_s += seconds - again_s
        else:
            self.decode_s += seconds - again_s

    def delays(self, delayed_s: float) -> Delays:
        """Returns the seconds, since the request was first planned, in which the processor ran other programs instead
        of the engine. delayed_s: the sum of such seconds over all steps of the engine so far."""
        if self.first_s is None:
            return Delays()
        if self.token_s is None:
            return Delays(delayed_s - self.delayed_before_s)
        return Delays(self.delayed_token_s - self.delayed_before_s, delayed_s - self.delayed_token_s)

    def was_away(self, at_s: float) -> bool:
        """Whether the completion was preempted at the time `at_s`."""
        return any(spell.from_s <= at_s and (spell.until_s is None or at_s < spell.until_s) for spell in self.spells)

    def shares(self, steps: Sequence[ChunkStep]) -> tuple[Share, ...]:
        """Returns the time that chunks of other requests took in these steps, the longest share first."""
        return shares(steps, self.request.request_id, 0.0, self.token_ordinal)

    def parts(self) -> TimeParts:
        """The seconds that the completion has spent in the queue, in prefill, in decode and so on, as far as they are
        accounted."""
        return TimeParts(
            self.queue_s,
            self.encode_s,
            self.own_s,
            self.others_s,
            self.decode_s,
            self.back_s,
            self.recompute_s,
            self.host_s,
            self.stall_s,
        )


class Account(Struct, frozen=True):
    """The account of a completion that has ended. Times are seconds of the engine's clock. parts: the seconds of each
    part of its time, such as queueing and decode. They add up to finished_s - arrival_s, plus the delay where its
    reader took the last piece late. start: the same for the time up to the first token.

    start_shares, stretches: the other completions whose prefill took time in steps of this one, during its prefill and
    during its decode. unread_s: how long pieces waited for the reader, summed up. sample: what each decoding sequence
    computed in the step in the middle of its decode. delays: seconds in which the processor ran other programs; `parts`
    count them too. stays: the times at the replicas of a front. image_tokens: the tokens of the prompt that show
    images.
    """

    request_id: str
    group_id: str
    reason: FinishReason
    arrival_s: float
    first_scheduled_s: float | None
    first_token_s: float | None
    finished_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    priority: int
    parts: TimeParts
    start: TimeParts | None
    queue: QueueStory
    start_shares: tuple[Share, ...] = ()
    stretches: tuple[Share, ...] = ()
    spells: tuple[PreemptionSpan, ...] = ()
    prefix_miss: PrefixMiss | None = None
    first_ordinal: int = 0
    sample: tuple[Segment, ...] = ()
    unread_s: float = 0.0
    delays: Delays = Delays()
    guesses: GuessCounts = GuessCounts()
    stays: tuple[ReplicaStay, ...] = ()
    disk: DiskRead = DiskRead()
    image_tokens: int = 0
    encodes: EncodeCounts = EncodeCounts()

    @property
    def e2e_s(self) -> float:
        """Seconds from arrival to the end. They include the time for which the client left the last piece unread."""
        return self.parts.total_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first token; None when there was no token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def stream_s(self) -> float:
        """Seconds from the first token to the end."""
        return 0.0 if self.first_token_s is None else self.e2e_s - (self.first_token_s - self.arrival_s)


def record_of(account: Account) -> RequestRecord:
    """The account's record for the trace."""
    return RequestRecord(
        account.request_id,
        account.arrival_s,
        account.finished_s,
        account.num_prompt_tokens,
        account.num_output_tokens,
        account.num_cached_tokens,
        account.priority,
        account.parts.by_name(),
    )


class ChunkStep(tuple[int, float, float, tuple[tuple[str, int, float], ...]]):
    """A step that had prefill in it: (ordinal, begin, commit, ((request id, rows, seconds), ...)). The inner tuples are
    the chunks, with the part of the step's seconds that each took."""

    __slots__ = ()


def chunks_since(steps: deque[ChunkStep], since_s: float) -> list[ChunkStep]:
    """The steps that ended after since_s, the latest first."""
    return list(takewhile(lambda step: step[2] > since_s, reversed(steps)))


def shares(steps: Sequence[ChunkStep], own_id: str, since_s: float, first_ordinal: int) -> tuple[Share, ...]:
    """Returns how much time the chunks of each other request took in these steps, the longest share first. own_id: the
    request that is left out. since_s: only the time after it counts. first_ordinal: the number of the step from which
    longest_at is counted, such as the step with the first token."""
    sums: dict[str, list[float]] = {}  # the fields of a Share, in order
    for ordinal, begin_s, commit_s, chunks in steps:
        kept = 1.0 if begin_s >= since_s else (commit_s - since_s) / (commit_s - begin_s)
        for request_id, rows, chunk_s in chunks:
            if request_id == own_id:
                continue
            seconds = chunk_s * kept
            own = sums.setdefault(request_id, [0.0, 0, 0, -1.0, 0])
            own[0] += seconds
            own[1] += 1
            own[2] += rows
            if seconds > own[3]:
                own[3], own[4] = seconds, ordinal - first_ordinal
    most = sorted(sums.items(), key=lambda item: -item[1][0])[:MAX_SHARES]
    return tuple(Share(name, own[0], int(own[1]), int(own[2]), own[3], int(own[4])) for name, own in most)
