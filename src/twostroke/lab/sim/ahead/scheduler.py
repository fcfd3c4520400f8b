"""The production scheduler for a simulator that knows all tokens in advance, so that it need not plan each stream.

A stream is a sequence that gets exactly one token in each step. `schedule` adds one token to all streams at once where
their pages are available, and plans only the other sequences as usual. `skip` does many steps at once if they contain
only streams. The result is the same as that of single steps (tests/sim/test_steady.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Sequence as Positions
from itertools import chain

from twostroke.cost.shape import Part, Segment
from twostroke.engine.cache.manager import CacheManager, Prefix
from twostroke.engine.scheduler.admission import PageAdmission
from twostroke.engine.scheduler.ending import Ending
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.engine.scheduler.limits.limits import SchedulerLimits, StepLoad
from twostroke.engine.scheduler.misses import MissReasons
from twostroke.engine.scheduler.plan_in_work import PlanInWork
from twostroke.engine.scheduler.policy import ArrivalPolicy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.lab.sim.ahead.steady import SteadyDecode
from twostroke.lab.sim.ahead.streams import Continuation, OnTokens, Streams
from twostroke.types.event import Event, FinishedEvent
from twostroke.types.plan import Plan
from twostroke.types.recorded.prefix import PrefixMiss
from twostroke.types.request import FinishReason
from twostroke.types.result import StepResult


class LoadBeside(StepLoad):
    """The load of a step that also computes streams: sequences that get exactly one token a step, so the plan need not
    list them. stream_starts: for each stream, the position that the step computes."""

    stream_starts: Positions[int] = ()

    @property
    def num_sequences(self) -> int:
        """The number of all sequences in the step: the streams, and those that the plan lists so far."""
        return len(self.stream_starts) + len(self.parts)

    def segments(self) -> list[Segment]:
        """Returns the segments of the step for the cost model. A segment is what the step computes of one sequence.
        Streams come first."""
        return [*map(Segment.decode, self.stream_starts), *StepLoad.segments(self)]

    def streams(self) -> list[Segment]:
        """Returns the segments (the part of a step that one sequence has) of all sequences that decode."""
        return [*map(Segment.decode, self.stream_starts), *StepLoad.streams(self)]


class AdmissionBeside(PageAdmission):
    """A PageAdmission that gives the same answers faster while many streams decode: the pages that streams need are
    known as one sum."""

    def __init__(self, cache: CacheManager, watermark_pages: int, streams: Streams) -> None:
        super().__init__(cache, watermark_pages)
        self._streams = streams

    def fits_now(self, sequence: Sequence, matched: Prefix, running: Collection[Sequence]) -> bool:
        """Returns whether the sequence can be admitted now: what PageAdmission would return."""
        streams = self._streams
        if not len(streams):
            return super().fits_now(sequence, matched, running)
        others = [each for each in running if each not in streams] if len(streams) < len(running) else ()
        promised = streams.missing_pages + self._watermark_pages * len(streams)
        return self.fits_beside(sequence, matched, promised, others)


class NoMissReasons(MissReasons):
    """Stands in for MissReasons and gives no reasons for prefix misses."""

    def explain(self, sequence: Sequence, matched: Prefix, running: Iterable[Sequence]) -> PrefixMiss | None:
        return None


class LookAheadScheduler(Scheduler):
    """A scheduler that can do many steps at once if they only compute streams, the sequences that decode one token in
    each step. continuation: returns the tokens that a stream will get. on_tokens: called with a stream's tokens when it
    ends or is planned again.

    The policy is not told of steps that contain only streams. These steps take exactly the predicted time, so the
    policy's estimates would not change. The reasons of prefix misses are not looked for, because a simulation keeps no
    records of steps. Raises ValueError for a cache whose pages do not stay until their sequence ends.
    """

    def __init__(
        self,
        cache: CacheManager,
        limits: SchedulerLimits,
        policy: ArrivalPolicy | None,
        continuation: Continuation,
        on_tokens: OnTokens,
    ) -> None:
        super().__init__(cache, limits, policy)
        if not cache.pages_stay:
            raise ValueError("streams that give pages back, or hold states, must be planned step by step")
        streams = Streams(cache, continuation, on_tokens)
        cache.forget_misses()
        self._misses = NoMissReasons(cache)
        self._pages = AdmissionBeside(cache, limits.watermark_pages, streams)
        self.steady = SteadyDecode(self._queues, cache, self._pages, limits, streams)
        self.beside: Positions[int] = ()
        """The positions that streams compute in the current step. Its plan does not list them."""

    def schedule(self, now: float) -> Plan | None:
        """Plans the next step. To save time the plan does not list streams, the sequences that only get one token a
        step; `beside` has their positions. A step of streams alone has an empty plan."""
        if not self.steady.begin_one():
            self.steady.settle()
            return super().schedule(now)
        self._now = max(self._now, now)
        self.beside = starts = self.steady.positions()
        plan = self._plan_prefills(PlanInWork(now, LoadBeside(len(starts), stream_starts=starts)))
        return plan or Plan(self._num_steps, ())

    def commit(self, plan: Plan, result: StepResult, now: float) -> list[Event]:
        """Takes in the result of a step. First, the streams get their tokens, and those with their last token end; then
        the planned sequences follow."""
        events: list[Event] = list(self.skip(1, now)) if self.beside else []
        if plan.sequences:
            events += super().commit(plan, result, now)
        self.beside = ()
        return events

    def skip(self, steps: int, now: float) -> list[FinishedEvent]:
        """Does `steps` steps of all streams at once, without plans. SteadyDecode must have found that this is possible.
        Returns the events of the streams that end. now: the end of the last step."""
        if not self.beside:
            self.under_way.skipped_to(now)
        ended = self.steady.skip(steps)
        return [self._end(sequence, Ending(FinishReason.LENGTH), now) for sequence in ended]

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        self.steady.settle()
        return super().finish(request_id, reason, now, num_output_tokens)

    def gauges(self) -> Gauges:
        self.steady.settle()
        return super().gauges()

    def _parts(self, plan: Plan) -> Iterable[Part]:
        return chain(map(Segment.decode, self.beside), plan.sequences)

    def _in_step(self, step: PlanInWork) -> set[str]:
        return self.steady.names().union(step.planned)
