"""The policy that keeps TTFT and ITL objectives by predicting the times of steps, instead of by flags that a user
tunes.

policy = objective_policy(cost, LatencyObjectives(ttft_s=1, itl_s=0.05), limits, page_tokens=16)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twostroke.cost.shape import Part, Segment, StepCost
from twostroke.engine.scheduler.ageing import TURN_STEPS, AgeingTurns
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.batch_decodes import BatchDecodes
from twostroke.engine.scheduler.limits.batch_share import BATCH_SHARE, BatchShare
from twostroke.engine.scheduler.limits.itl_limiter import ItlLimiter
from twostroke.engine.scheduler.limits.limits import Limiter, SchedulerLimits, StepLoad
from twostroke.engine.scheduler.limits.stream_rule import StreamRule
from twostroke.engine.scheduler.objectives.promise_order import PromiseOrder
from twostroke.engine.scheduler.objectives.ttft_gate import TtftGate
from twostroke.engine.scheduler.objectives.work_ahead import Room, WorkAhead
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.errors import Overloaded
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives
from twostroke.types.plan import Role


class ObjectivePolicy:
    """Satisfies `scheduler.policy.Policy` by latency objectives: it decides which sequences run, wait or are refused,
    so that each accepted request keeps its TTFT and ITL. Batch work (priority above 0) has no objectives."""

    def __init__(
        self,
        objectives: LatencyObjectives,
        times: StepTime,
        limiter: ItlLimiter,
        streams: StreamRule,
        gate: TtftGate,
        order: PromiseOrder,
    ) -> None:
        self.limiters: tuple[Limiter, ...] = (limiter,)
        self._objectives = objectives
        self._times = times
        self._limiter = limiter
        self._gate = gate
        self._order = order
        self._turns = AgeingTurns()
        self._share = BatchShare()
        self._batch_decodes = BatchDecodes(times.high_s)
        self._streams = streams
        self._oldest: Sequence | None = None
        self._first: Sequence | None = None  # the first sequence of the last group

    def accept(self, sequence: Sequence, cached_tokens: Callable[[], int], queues: Queues, now: float) -> None:
        """Set the sequence's objectives and its place among the waiting. Raises Overloaded when its first token would
        come far too late (TtftGate). The other completions of its request get the same decision.

        A preempted stream is ranked here again and is not refused. A stream that another replica has begun is not
        refused either.
        """
        self._times.at(now)
        request = sequence.request
        promised = self._objectives.loosened(request.objectives)
        sequence.objectives = promised if sequence.interactive else NO_OBJECTIVES
        cached = cached_tokens()
        sequence.prefill_tokens = sequence.remaining - cached
        sequence.prefill_s = self._times.usual_s([Segment.prefill(cached, sequence.prefill_tokens, True)])
        sequence.prefill_s += sequence.encode_s
        sequence.rank = self._order.rank(sequence)
        if sequence.num_preemptions or sequence.num_output:
            return
        if self._first is not None and request.group_id == self._first.request.group_id:
            self._gate.follow(sequence, self._first)
        else:
            self._first = sequence
            self._gate.check(sequence, queues, now)

    def decodes(self, queues: Queues) -> list[Sequence]:
        """Returns all interactive sequences that decode, and as many of the batch sequences as the time of the step
        allows."""
        interactive = [s for s in queues.decoding if s.interactive]
        batch = [s for s in queues.decoding if not s.interactive]
        return interactive + self._batch_decodes.chosen(interactive, batch, self._limiter.bound_s(interactive))

    def prefills(self, queues: Queues, now: float) -> Iterator[Sequence]:
        """Yields the sequences to prefill: first the oldest one, in the steps that AgeingTurns reserves for it. Batch
        work is next when it has had less than its share, and otherwise last. Interactive sequences come by their rank
        (PromiseOrder)."""
        self._times.at(now)
        self._gate.promise(queues, now)
        wanting = self._order.interactive(queues) if self._turns.open else ()
        self._oldest = self._turns.oldest(wanting)
        return self._in_order(queues, self._oldest)

    def may_run(self, sequence: Sequence, queues: Queues) -> bool:
        """Returns True when all sequences would still keep their ITL objectives with this one running too."""
        return self._streams.has_room(sequence, queues.running)

    def planned(self, step: StepLoad, queues: Queues) -> None:
        """Note how many tokens of batch work and of interactive work this step prefills (BatchShare), and whether it
        prefills the oldest sequence (AgeingTurns)."""
        prefilled = [(s, num_tokens) for s, num_tokens in step.parts if s.role is Role.PREFILL]
        batch_tokens = sum(num_tokens for s, num_tokens in prefilled if not s.interactive)
        # Interactive prompts owe no share to a sequence that waits for the place of a batch stream.
        last = queues.waiting[-1:] if self._streams.has_batch_place(queues.running) else []
        pending = batch_tokens > 0 or any(not s.interactive for s in (*queues.prefilling, *last))
        interactive_tokens = sum(num_tokens for _, num_tokens in prefilled) - batch_tokens
        self._share.planned(interactive_tokens, batch_tokens, pending)
        wanted = bool(prefilled or queues.waiting)
        self._turns.planned([s for s, _ in prefilled if s.interactive], self._oldest, wanted)

    def observe(self, parts: Iterable[Part], measured_s: float, now: float, disturbed: bool = False) -> None:
        """Correct the predicted step times by this step's time."""
        self._times.observe(parts, measured_s, now, disturbed)

    def observe_cold(self, parts: Iterable[Part], measured_s: float) -> None:
        """Correct the predicted step times by a cold step, in which memory was still being made ready. The correction
        is used until the first step that is not cold."""
        self._times.observe_cold(parts, measured_s)

    def ended(self, sequence: Sequence) -> None:
        """Learn the length of an answer that has ended."""
        self._gate.ended(sequence)
        self._first = None if self._first is sequence else self._first

    def holds(self, sequence: Sequence) -> bool:
        return self._gate.holds(sequence)

    def overdue(self, queues: Queues, now: float) -> list[tuple[Sequence, Overloaded]]:
        """Returns the sequences that wait without a promise and cannot be in time any more, each with its refusal."""
        return self._gate.overdue(queues, now)

    def _in_order(self, queues: Queues, oldest: Sequence | None) -> Iterator[Sequence]:
        if oldest is not None:
            yield oldest
        place = self._streams.has_batch_place(queues.running)
        due = self._share.due
        if due:
            yield from self._order.batch(queues, place)
        yield from (s for s in self._order.interactive(queues) if s is not oldest)
        if not due:
            yield from self._order.batch(queues, place)


def objective_policy(
    cost: StepCost,
    objectives: LatencyObjectives,
    limits: SchedulerLimits,
    page_tokens: int,
    refuses: bool = True,
    guessed: bool = False,
) -> ObjectivePolicy:
    """Returns the policy for these objectives on a machine that `cost` predicts. refuses: False refuses no request.

    guessed: True when the machine was not measured, so `cost` is trusted less until steps were measured.
    """
    times = StepTime.of(cost, guessed)
    limiter = ItlLimiter(times, page_tokens, objectives.ttft_s)
    room = Room(limits.max_sequences, limits.max_step_tokens, BATCH_SHARE, 1 / TURN_STEPS)
    order = PromiseOrder()
    gate = TtftGate(WorkAhead(times, limiter, room), order, refuses)
    streams = StreamRule(times.now_s, limits.max_sequences)
    return ObjectivePolicy(objectives, times, limiter, streams, gate, order)
