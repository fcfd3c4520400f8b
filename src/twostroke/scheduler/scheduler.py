"""The scheduler: plan = schedule(now), events = commit(plan, result, now).

Knows: queues, the cache manager, limiters, admission rules.
Must not know: executors, models, text, clocks (`now` is an argument).
"""

from __future__ import annotations

from collections.abc import Sequence as Positions
from dataclasses import dataclass

from twostroke.cache.manager import CacheManager
from twostroke.scheduler.admission import PageAdmission, SiblingRule
from twostroke.scheduler.limits import Limiter, SchedulerLimits, SequenceBudget, StepLoad, TokenBudget
from twostroke.scheduler.misses import MissReasons
from twostroke.scheduler.policy import ArrivalPolicy, Policy
from twostroke.scheduler.queues import Queues
from twostroke.scheduler.sequence import NO_SCORES, Sequence
from twostroke.scheduler.steady import SteadyDecode
from twostroke.scheduler.streams import Continuation, Streams, Told
from twostroke.types.errors import OutOfMemory, Overloaded
from twostroke.types.event import Event, FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.plan import Hold, Plan, PlannedSequence, Preemption
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counts of one moment; the totals only rise."""

    running: int
    waiting: int
    pages_free: int
    pages_used: int
    pages_cached: int
    waste_tokens: int
    preemptions_total: int
    prefix_query_tokens: int
    prefix_hit_tokens: int


class Scheduler:
    """Deterministic: the same calls give the same plans."""

    def __init__(self, cache: CacheManager, limits: SchedulerLimits, policy: Policy | None = None) -> None:
        self._cache = cache
        self._queues = Queues()
        self._limits = limits
        self._policy = policy or ArrivalPolicy()
        budgets: tuple[Limiter, ...] = (SequenceBudget(limits.max_sequences), TokenBudget(limits.max_step_tokens))
        self._limiters = budgets + self._policy.limiters
        self._pages = PageAdmission(cache, limits.watermark_pages)
        self._siblings = SiblingRule(cache.page_tokens)
        self._steady: SteadyDecode | None = None
        self._misses: MissReasons | None = MissReasons(cache)
        self._num_added = 0
        self._num_steps = 0
        self._preemptions = 0
        self._query_tokens = 0
        self._hit_tokens = 0
        self._now = 0.0  # the latest that was heard of
        self._since_s = 0.0  # from when the streams of the step under way wait for it
        self._beside: Positions[int] = ()  # of the step under way: positions of streams that are not in its plan

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""
        return len(self._queues) > 0

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises ValueError for an id that is live, OutOfMemory where the whole pool is too small, Overloaded where the
        policy cannot serve it in time.
        """
        if request.request_id in self._queues:
            raise ValueError(f"request {request.request_id!r} is live already")
        sequence = Sequence(request, self._num_added + 1, list(request.prompt_token_ids))
        if not self._pages.fits_ever(sequence):
            raise OutOfMemory("The request can never run.", why=f"{self._too_long(sequence)}.", fix="Shorten it.")
        self._now = max(self._now, request.arrival_s)
        self._welcome(sequence)
        self._num_added += 1
        self._queues.enqueue(sequence)

    def abort(self, request_id: str, now: float) -> list[Event]:
        """End a request; its pages are free at once. An unknown id changes nothing."""
        return self.finish(request_id, FinishReason.ABORT, now)

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """End a request for a reason that the scheduler cannot see, such as a stop string."""
        self._settle()
        sequence = self._queues.find(request_id)
        return [] if sequence is None else [self._end(sequence, reason, now, num_output_tokens=num_output_tokens)]

    def schedule(self, now: float) -> Plan | None:
        """What the next step computes; None where nothing can be computed."""
        self._settle()
        step, planned, preempted = StepLoad(), {}, []  # type: StepLoad, dict[str, PlannedSequence], list[Preemption]
        self._now = max(self._now, now)
        if not self._queues.running:
            self._since_s = now
        for sequence in self._policy.decodes(self._queues):
            if sequence.admission is not None:  # not preempted a moment ago
                self._plan_one(sequence, self._allowed(sequence, step), step, planned, preempted, now)
        return self._plan_prefills(step, planned, preempted, now)

    def _plan_prefills(
        self, step: StepLoad, planned: dict[str, PlannedSequence], preempted: list[Preemption], now: float
    ) -> Plan | None:
        """The rest of a step that holds what decodes: prompts, and who enters."""
        step.num_decode_tokens = step.num_tokens
        held: Hold | None = None
        may_enter, to_go_on = True, len(self._queues.prefilling)
        for sequence in self._policy.prefills(self._queues, now):
            if step.full:
                break
            if sequence.admission is not None:
                to_go_on -= 1
                self._plan_one(sequence, self._allowed(sequence, step), step, planned, preempted, now)
            elif not (may_enter or to_go_on):
                break  # all others wait
            elif may_enter:
                held = (Hold.PAGES if preempted else self._enter(sequence, step, planned, preempted, now)) or held
                may_enter = held is None or held is Hold.SIBLING
        if step.full and may_enter and self._queues.waiting:
            held = self._why_full(step, preempted)
        self._policy.planned(step, self._queues)
        if not planned:
            return None
        self._num_steps += 1
        return Plan(self._num_steps, tuple(planned.values()), tuple(preempted), held)

    def commit(self, plan: Plan, result: StepResult, now: float) -> list[Event]:
        """Take in what a plan gave. Requests that ended in between are left out."""
        events: list[Event] = []
        find = self._queues.find
        self._now = max(self._now, now)
        # What the streams feel: from one step's end to the next one's, what the driver does in between included, or the
        # executor's own time where that is more. Cold steps, and steps that failed, say nothing of the next ones.
        if not (result.cold or result.failed):
            measured_s = max(now - self._since_s, result.model_s + result.sampling_s)
            self._policy.observe(plan, measured_s, now, self._beside)
        self._since_s, self._beside = now, ()
        for planned in plan.sequences:
            sequence = find(planned.request.request_id)
            if sequence is not None and sequence.admission is not None:
                self._commit_one(sequence, planned, result, now, events)
        for sequence, refusal in self._policy.overdue(self._queues, now):
            events.append(self._end(sequence, FinishReason.ERROR, now, refusal=refusal))
        return events

    def look_ahead(self, continuation: Continuation, told: Told) -> SteadyDecode | None:
        """For simulators, who know the tokens that will come: streams that are not planned one by one from now on.

        told: hears of a stream's tokens when it ends or is planned again. None where a policy may leave streams out.
        A policy does not hear of steps that are skipped: they take what the cost model says, and would teach nothing.
        Why prefixes were missed is not looked for: that is told beside records of steps, and nobody has those here.
        """
        if self._policy.streams_pass:
            self._misses = None
            self._cache.forget_misses()
            self._pages.streams = streams = Streams(self._cache, continuation, told)
            self._steady = SteadyDecode(self._queues, self._cache, self._pages, self._limits, streams)
        return self._steady

    def schedule_beside(self, steady: SteadyDecode, now: float) -> Plan | None:
        """As `schedule`, where `steady.begin_one` has begun the step for the streams; the plan has all others."""
        self._now = max(self._now, now)
        self._beside = steady.positions()
        step = StepLoad(steady.num_streams, num_streams=steady.num_streams, stream_starts=self._beside)
        plan = self._plan_prefills(step, {}, [], now)
        if plan is None:
            self._beside = ()
        return plan

    def skip(self, steps: int, now: float) -> list[FinishedEvent]:
        """Do for the streams what `steady` has just allowed, the last step committed at `now`; who ended in it."""
        if not self._beside:
            self._since_s = now
        ended = [] if self._steady is None else self._steady.skip(steps)
        return [self._end(sequence, FinishReason.LENGTH, now) for sequence in ended]

    def gauges(self) -> Gauges:
        """Counts of this moment."""
        self._settle()
        cache, queues = self._cache, self._queues
        return Gauges(
            running=len(queues.running),
            waiting=len(queues.waiting),
            pages_free=cache.pages_free,
            pages_used=cache.pages_used,
            pages_cached=cache.pages_cached,
            waste_tokens=cache.waste_tokens,
            preemptions_total=self._preemptions,
            prefix_query_tokens=self._query_tokens,
            prefix_hit_tokens=self._hit_tokens,
        )

    def _settle(self) -> None:
        if self._steady is not None:
            self._steady.settle()

    def _welcome(self, sequence: Sequence) -> None:
        """Ask the policy for its rank."""

        def cached_tokens() -> int:
            matched = self._cache.match(sequence.request.cache_salt, sequence.known)
            return self._cache.spared_tokens(matched, len(sequence.known))

        self._policy.welcome(sequence, cached_tokens, self._queues, self._now)

    def _allowed(self, sequence: Sequence, step: StepLoad) -> int:
        """Positions of a sequence that every limit lets into this step."""
        wanted = num_tokens = len(sequence.known) - sequence.computed
        for limiter in self._limiters:
            num_tokens = limiter.limit(sequence, num_tokens, step)
        if num_tokens < wanted:
            step.full = True
        return num_tokens

    def _plan_one(
        self,
        sequence: Sequence,
        num_tokens: int,
        step: StepLoad,
        planned: dict[str, PlannedSequence],
        preempted: list[Preemption],
        now: float,
    ) -> None:
        """Put a running sequence into the step, taking pages from others where it must."""
        if num_tokens == 0:
            return
        request, start = sequence.request, sequence.computed
        request_id, end = request.request_id, start + num_tokens
        while (page_ids := self._cache.reserve(request_id, end)) is None:
            kept = set(planned) if self._steady is None else self._steady.names().union(planned)
            victim = self._queues.last_resort(kept)
            if victim is None or victim is sequence:
                self._preempt(sequence, request_id, preempted)
                return
            self._preempt(victim, request_id, preempted)
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now
        step.add(sequence, num_tokens)
        sequence.last_step = self._num_steps + 1
        known = sequence.known
        samples = end == len(known) and request.max_tokens > 0
        scores = NO_SCORES if request.params.prompt_logprobs is None else sequence.scores_in(end)
        planned[request_id] = PlannedSequence(request, start, num_tokens, known, page_ids, samples, scores)

    def _preempt(self, sequence: Sequence, by: str, preempted: list[Preemption]) -> None:
        """Take its pages; its tokens stay known and are computed again, with the same bits."""
        preempted.append(Preemption(sequence.request.request_id, by, sequence.computed))
        self._cache.close(sequence.request.request_id)
        sequence.computed = 0
        sequence.num_preemptions += 1
        self._preemptions += 1
        self._welcome(sequence)
        self._queues.put_back(sequence)

    def _enter(
        self,
        sequence: Sequence,
        step: StepLoad,
        planned: dict[str, PlannedSequence],
        preempted: list[Preemption],
        now: float,
    ) -> Hold | None:
        """Let a waiting sequence run, or say why not. But for a sibling's, nobody behind it may go first then."""
        if len(self._queues.running) >= self._limits.max_sequences:
            return Hold.SEQUENCES
        if step.num_tokens >= self._limits.max_step_tokens:
            return Hold.TOKENS
        if self._siblings.holds_back(sequence, self._queues.running):
            return Hold.SIBLING
        matched = [] if sequence.to_score else self._cache.match(sequence.request.cache_salt, sequence.known)
        if not self._pages.fits_now(sequence, matched, self._queues.running):
            return Hold.PAGES
        if not self._policy.may_enter(sequence, self._queues):
            return Hold.OBJECTIVE
        sequence.computed = self._cache.spared_tokens(matched, len(sequence.known))
        num_tokens = self._allowed(sequence, step)
        if num_tokens == 0:
            sequence.computed = 0
            return self._why_full(step, preempted)
        self._queues.admit(sequence)
        self._cache.open(sequence.request.request_id, sequence.request.cache_salt, matched)
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = sequence.computed
            if self._misses is not None:
                sequence.prefix_miss = self._misses.explain(sequence, matched, self._queues.running)
            self._query_tokens += len(sequence.known)
            self._hit_tokens += sequence.computed
        self._plan_one(sequence, num_tokens, step, planned, preempted, now)
        return Hold.PAGES if preempted else None  # it found no page after all

    def _why_full(self, step: StepLoad, preempted: list[Preemption]) -> Hold:
        """What kept the first of the waiting out of a step that takes no more."""
        if preempted:
            return Hold.PAGES
        if len(self._queues.running) >= self._limits.max_sequences:
            return Hold.SEQUENCES
        return Hold.TOKENS if step.num_tokens >= self._limits.max_step_tokens else Hold.OBJECTIVE

    def _commit_one(
        self, sequence: Sequence, planned: PlannedSequence, result: StepResult, now: float, events: list[Event]
    ) -> None:
        """Take in one sequence's part of a step; what there is to tell goes to the end of `events`."""
        request_id = planned.request.request_id
        if result.failed and request_id in result.failed:
            events.append(self._end(sequence, FinishReason.ERROR, now, error=result.failed[request_id]))
            return
        sequence.computed = planned.start + planned.num_tokens
        self._cache.commit(request_id, sequence.computed, sequence.known)
        if planned.scores:
            sequence.scored = planned.scores.stop
            events.append(PromptEvent(request_id, result.prompt_logprobs.get(request_id, ())))
        if not planned.samples:
            if sequence.remaining == 0:
                events.append(self._end(sequence, FinishReason.LENGTH, now))
            return
        sampled = result.sampled.get(request_id)
        if sampled is None:
            events.append(self._end(sequence, FinishReason.ERROR, now, error="the step gave no token"))
            return
        self._take_token(sequence, sampled, now, events)

    def _take_token(self, sequence: Sequence, sampled: SampledToken, now: float, events: list[Event]) -> None:
        request, token_id = sequence.request, sampled.token_id
        ends = token_id in request.end_token_ids or token_id in request.params.stop_token_ids
        if ends and sequence.num_output >= request.params.min_tokens:
            events.append(self._end(sequence, FinishReason.STOP, now, stopped_by=sampled))
            return
        known = sequence.known
        known.append(token_id)
        if request.mask is not None:
            request.mask.feed(token_id)
        events.append(TokenEvent(request.request_id, token_id, sampled.logprob, now))
        if len(known) - len(request.prompt_token_ids) >= request.max_tokens:
            events.append(self._end(sequence, FinishReason.LENGTH, now))
        elif not self._pages.fits_ever(sequence):
            events.append(self._end(sequence, FinishReason.ERROR, now, error=self._too_long(sequence)))

    def _too_long(self, sequence: Sequence) -> str:
        tokens = self._cache.num_pages * self._cache.page_tokens
        return f"the request has {len(sequence.known)} tokens and the KV pool has room for {tokens}"

    def _end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        now: float,
        *,
        stopped_by: SampledToken | None = None,
        error: str | None = None,
        refusal: Overloaded | None = None,
        num_output_tokens: int | None = None,
    ) -> FinishedEvent:
        """The one terminal event; pages are free when it is returned."""
        self._queues.remove(sequence)
        self._cache.close(sequence.request.request_id)
        self._policy.ended(sequence)
        return FinishedEvent(
            request_id=sequence.request.request_id,
            reason=reason,
            at_s=now,
            num_prompt_tokens=len(sequence.request.prompt_token_ids),
            num_output_tokens=sequence.num_output if num_output_tokens is None else num_output_tokens,
            num_cached_tokens=sequence.num_cached_tokens or 0,
            num_preemptions=sequence.num_preemptions,
            first_scheduled_s=sequence.first_scheduled_s,
            stopped_by=None if stopped_by is None else stopped_by.token_id,
            end_logprob=None if stopped_by is None else stopped_by.logprob,
            error=error if refusal is None else str(refusal),
            retry_after_s=None if refusal is None else refusal.retry_after_s,
            prefix_miss=sequence.prefix_miss,
        )
