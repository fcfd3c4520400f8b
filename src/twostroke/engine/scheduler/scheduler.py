"""The scheduler: plan = schedule(now), events = commit(plan, result, now)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from twostroke.cost.shape import Part
from twostroke.engine.cache.manager import NOTHING_CACHED, CacheManager
from twostroke.engine.scheduler.admission import PageAdmission, SiblingRule
from twostroke.engine.scheduler.drafts import Drafter, Drafts
from twostroke.engine.scheduler.ending import Ending
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.engine.scheduler.limits.cache_limiters import cache_limiters
from twostroke.engine.scheduler.limits.heavy_masks import without_late_masks
from twostroke.engine.scheduler.limits.image_turns import ImageTurns
from twostroke.engine.scheduler.limits.limits import SchedulerLimits, StepLoad, WholePrompts, budgets_of
from twostroke.engine.scheduler.limits.span_turns import SpanTurns
from twostroke.engine.scheduler.limits.whole_spans import WholeSpans
from twostroke.engine.scheduler.misses import MissReasons
from twostroke.engine.scheduler.new_tokens import NewTokens
from twostroke.engine.scheduler.parking import Parking
from twostroke.engine.scheduler.places import Places
from twostroke.engine.scheduler.plan_in_work import PlanInWork
from twostroke.engine.scheduler.policy import ArrivalPolicy, Policy
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import NO_SCORES, Sequence
from twostroke.engine.scheduler.steering import Steering
from twostroke.engine.scheduler.under_way import UnderWay
from twostroke.types.errors import OutOfMemory
from twostroke.types.event import Event, FinishedEvent, PromptEvent
from twostroke.types.plan import NO_TURN, PASSED_BY, Copies, Hold, Plan, PlannedSequence, Preemption, Role
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult


class Scheduler:
    """Chooses what each step computes, and keeps the state of all sequences. The same calls give the same plans.
    limiters: the limits on each sequence's rows in a step; a caller may replace them before the first request."""

    def __init__(
        self, cache: CacheManager, limits: SchedulerLimits, policy: Policy | None = None, drafter: Drafter | None = None
    ) -> None:
        self._cache = cache
        self._queues = Queues()
        self._limits = limits
        self._policy = policy or ArrivalPolicy()
        self.limiters = budgets_of(limits) + self._policy.limiters + cache_limiters(cache, limits)
        self.limiters += (WholePrompts(),) if limits.whole_prompts else ()
        self._has_states = cache.states is not None
        self._pages = PageAdmission(cache, limits.watermark_pages)
        self._tokens = NewTokens(self._queues, self._pages)
        self._drafts = Drafts(drafter, limits, cache.page_tokens if self._has_states else 0)
        self._siblings, self._places = SiblingRule(cache.page_tokens), Places(limits.max_sequences)
        self._misses, self.images = MissReasons(cache), ImageTurns()
        self.spans = SpanTurns(WholeSpans(limits.max_step_tokens, cache.chunk_tokens), self.images.times)
        self.steering = Steering(cache, self._queues, self._give_up)
        self.parking = Parking(self._queues, self._give_up)
        self._given_up: list[Preemption] = []  # given up outside of a step; the next plan names them
        self._num_added = self._num_steps = self._preemptions = self._query_tokens = self._hit_tokens = 0
        self._now = 0.0  # the latest time of all calls
        # Recurrent state depends on every earlier position, so the next plan needs the result of the plan before.
        self.under_way = UnderWay(1 if self._has_states else limits.plans_in_flight, cache.pages_stay)

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""
        return len(self._queues) > 0

    @property
    def unread_tokens(self) -> int:
        """The tokens of waiting and running prompts that are not computed yet. Decoding sequences are left out."""
        return sum(sequence.remaining for sequence in (*self._queues.waiting, *self._queues.prefilling))

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises ValueError for an id that is live, OutOfMemory when the whole pool is too small, and Overloaded when the
        policy cannot serve the request in time.
        """
        if request.request_id in self._queues:
            raise ValueError(f"request {request.request_id!r} is live already")
        sequence = Sequence(request, self._num_added + 1, [*request.prompt_token_ids, *request.resumed_token_ids])
        sequence.memory = request.resumed_memory
        if not self._pages.fits_ever(sequence):
            raise OutOfMemory("The request can never run.", why=f"{self._pages.too_long(sequence)}.", fix="Shorten it.")
        self._now = max(self._now, request.arrival_s)
        self.images.arrived(sequence)
        self._assign_rank(sequence)
        self._num_added += 1
        self._queues.enqueue(sequence)

    def holds(self, request_id: str) -> bool:
        """Returns True when the request waits without a promise of its TTFT: it is not predicted to be in time yet."""
        return (sequence := self._queues.find(request_id)) is not None and self._policy.holds(sequence)

    def abort(self, request_id: str, now: float) -> list[Event]:
        """End a request; its pages are free at once. An unknown id changes nothing."""
        return self.finish(request_id, FinishReason.ABORT, now)

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """End a request for a reason that the scheduler cannot see, such as a stop string."""
        sequence, ending = self._queues.find(request_id), Ending(reason, num_output_tokens=num_output_tokens)
        return [] if sequence is None else [self._end(sequence, ending, now)]

    def schedule(self, now: float) -> Plan | None:
        """Returns the next step's plan, or None. Paused sequences are preempted if nothing else can be computed."""
        self._now = max(self._now, now)
        if not self.under_way.room:
            return None
        if not self._queues.running:
            self.under_way.nothing_waited(now)
        plan = self._plan(now)
        while plan is None and not self.under_way and (idle := self._queues.idle_holder) is not None:
            self._give_up(idle, self._queues.waiting[0].request.request_id)
            plan = self._plan(now)
        return plan

    def _plan(self, now: float) -> Plan | None:
        queues, held_calls = self._queues, self._places.make(self._queues, self._give_up)
        all_decoding = list(self._policy.decodes(queues))
        prompts_wait = len(all_decoding) < len(queues.running) or bool(queues.waiting)
        decoding, share = self.under_way.turn(all_decoding := without_late_masks(all_decoding, prompts_wait))
        # The speculative decoder updates its statistics from one plan at a time.
        drafts = {} if self.under_way else self._drafts.of_step(decoding[:share], prompts_wait)
        made_room = tuple(each for each in self._given_up if each.request_id in queues)  # the others have ended since
        step = PlanInWork(now, drafts=drafts, made_room=made_room, held_calls=held_calls)
        for sequence in decoding:
            if len(step.planned) == share:
                break
            if sequence.admission is not None:  # it was not preempted a moment ago
                self._plan_one(sequence, self._allowed(sequence, step.load), step)
        step.load.elsewhere = self.under_way.beside(all_decoding, step.planned)
        self.images.reserve(step.load, self.limiters)
        return self._plan_prefills(step)

    def _plan_prefills(self, step: PlanInWork) -> Plan | None:
        """Add prompts and newly admitted requests to a step that already contains the decoding sequences."""
        load, queues = step.load, self._queues
        load.num_decode_tokens = load.num_tokens
        held: Hold | None = None
        may_plan = self.under_way.may_plan
        may_run, to_go_on = True, len(list(filter(may_plan, queues.prefilling)))
        for sequence in filter(may_plan, self._policy.prefills(queues, step.now)):
            if load.full:
                break
            if sequence.admission is not None:
                to_go_on -= 1
                self._plan_one(sequence, self._allowed(sequence, load), step)
            elif not (may_run or to_go_on):
                break  # all other sequences wait
            elif may_run:
                held = (Hold.PAGES if step.preempted else self._enter(sequence, step)) or held
                may_run = held in PASSED_BY
        if load.full and may_run and queues.waiting:
            held = self._why_full(step)
        self._policy.planned(load, queues)
        if step.is_empty:
            return None
        self._num_steps += 1
        self._given_up.clear()
        copies = Copies(self._cache.take_copies(), self._cache.take_page_copies())
        turn = self.images.take(load, self.limiters) if step.planned else NO_TURN
        plan = step.plan(self._num_steps, held, copies, turn)
        self.under_way.open(plan, load, self.steering.take_copied())
        return plan

    def commit(self, plan: Plan, result: StepResult, now: float) -> list[Event]:
        """Take in the result of a plan, and return its events. Requests that ended in between are left out."""
        events: list[Event] = []
        self._now = max(self._now, now)
        measured_s, held = self.under_way.close(plan, result, now)
        self.images.times.learn(result.span_times)
        self.images.done(result.encodes, (*self._queues.waiting, *self._queues.prefilling))
        own_s = measured_s - result.pieces_s  # what the sequences took next to pieces of images
        if result.cold and plan.sequences:
            self._policy.observe_cold(self._parts(plan), own_s)
        elif plan.sequences and not result.faulty:  # a fault does not predict the next steps
            self._policy.observe(self._parts(plan), own_s, now, disturbed=result.pieces_s > 0)
        self._drafts.observe(plan, result, 0.0 if result.cold or result.faulty or plan.span else measured_s)
        self._cache.settle_copies(result.faulty)
        self.steering.give_up_copies(held.copied if result.faulty else [])
        for planned, (sequence, admission) in zip(plan.computed, held.sequences, strict=True):
            live = sequence.admission == admission and self._queues.find(planned.request.request_id) is sequence
            if live and (planned is not plan.unfinished or planned.request.request_id in result.failed):
                self._commit_one(sequence, planned, result, now, events)
        for sequence, refusal in self._policy.overdue(self._queues, now):
            events.append(self._end(sequence, Ending(FinishReason.ERROR, refusal=refusal), now))
        return events

    def gauges(self) -> Gauges:
        """Returns the present counts of requests, pages and preemptions."""
        return Gauges.of(self._queues, self._cache, self._preemptions, self._query_tokens, self._hit_tokens)

    def _assign_rank(self, sequence: Sequence) -> None:
        self._policy.accept(sequence, partial(self._pages.cached_tokens, sequence), self._queues, self._now)

    def _parts(self, plan: Plan) -> Iterable[Part]:
        return plan.sequences

    def _in_step(self, step: PlanInWork) -> set[str]:
        return step.request_ids

    def _allowed(self, sequence: Sequence, step: StepLoad) -> int:
        """Returns how many positions of a sequence this step may compute by all limits."""
        wanted = self.spans.before(sequence, len(sequence.known) - sequence.computed)
        if not self.spans.is_open(sequence):
            wanted = self.images.limit(sequence, wanted, step, self.limiters)
        num_tokens = wanted
        for limiter in self.limiters:
            num_tokens = limiter.limit(sequence, num_tokens, step)
        num_tokens = self.spans.limit(sequence, num_tokens, step, self.limiters)
        if num_tokens < wanted:
            step.full = True
        return num_tokens

    def _plan_one(self, sequence: Sequence, num_tokens: int, step: PlanInWork) -> None:
        """Put a running sequence into the step. Other sequences may be preempted for its pages, but not for its
        guesses."""
        if num_tokens == 0:
            return
        request, start, known = sequence.request, sequence.computed, sequence.known
        request_id, end = request.request_id, start + num_tokens
        samples, role = end == len(known) and request.max_tokens > 0, sequence.role
        draft = step.drafts.get(request_id, ()) if samples else ()
        tables = self._cache.reserve(request_id, end + len(draft)) if draft else None
        if tables is None or not self._cache.hold_state(request_id):
            draft = ()
        while tables is None and (tables := self._cache.reserve(request_id, end)) is None:
            victim = self._queues.last_resort(self._in_step(step))
            if victim is None or victim is sequence:
                if not self.under_way:  # else pages may become free, or another sequence may be preempted
                    self._preempt(sequence, request_id, step.preempted)
                return
            self._preempt(victim, request_id, step.preempted)
        if samples and -end % self._cache.page_tokens < (spare := self._limits.spare_tokens):
            tables = self._cache.reserve(request_id, end + spare, len(self._queues.running)) or tables
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = step.now
        sequence.last_step = self._num_steps + 1
        scores = sequence.scores_in(end) if request.wants_rows else NO_SCORES
        slot = self._cache.slot_of(request_id) if self._has_states else -1
        num_tokens, alone = num_tokens + len(draft), start < sequence.alone_before
        planned = PlannedSequence(
            *(request, start, num_tokens, known, tables, samples, role, scores, slot, draft, sequence.pooled, alone),
            sequence.memory,
        )
        if step.load.span is not None and (work := self.spans.work(planned, step.load)) is not None:
            step.span = work
            return
        step.load.add(sequence, num_tokens)
        step.planned[request_id] = planned

    def _give_up(self, sequence: Sequence, by: str) -> None:
        """Preempt a sequence between two steps. by: the id of the request that caused it."""
        self._preempt(sequence, by, self._given_up)

    def _preempt(self, sequence: Sequence, by: str, preempted: list[Preemption]) -> None:
        """Take a sequence's pages. Its tokens stay known and are computed again, with the same bits."""
        preempted.append(Preemption(sequence.request.request_id, by, sequence.computed))
        self._cache.close(sequence.request.request_id)
        self.spans.left(sequence)
        sequence.computed, sequence.role = 0, Role.PREFILL
        sequence.num_preemptions += 1
        self._preemptions += 1
        self._assign_rank(sequence)
        self._queues.put_back(sequence)

    def _enter(self, sequence: Sequence, step: PlanInWork) -> Hold | None:
        """Admit a waiting sequence, or return why not. If the reason is not in PASSED_BY, no later one is admitted
        either."""
        if sequence.request.group_id in step.held_calls:
            return Hold.CALL
        if len(self._queues.running) >= self._limits.max_sequences:
            return Hold.SEQUENCES
        if step.load.num_tokens >= self._limits.max_step_tokens:
            return Hold.TOKENS
        if self._siblings.holds_back(sequence, self._queues.running):
            return Hold.SIBLING
        salt, known = sequence.request.cache_salt, sequence.known
        matched = self._cache.match(salt, sequence.keys) if sequence.may_skip else NOTHING_CACHED
        if not self._pages.fits_now(sequence, matched, self._queues.running):
            return Hold.PAGES
        if not self._policy.may_run(sequence, self._queues):
            return Hold.OBJECTIVE
        sequence.computed = self._cache.spared_tokens(matched, len(known))
        sequence.points = matched.points
        num_tokens = self._allowed(sequence, step.load)
        if num_tokens == 0:
            sequence.computed = 0
            return self._why_full(step) if step.load.full else Hold.IMAGE
        self._queues.admit(sequence)
        self._cache.open(sequence.request.request_id, salt, matched)
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = sequence.computed
            sequence.prefix_miss = self._misses.explain(sequence, matched, self._queues.running)
            self._query_tokens += len(known)
            self._hit_tokens += sequence.computed
        self._plan_one(sequence, num_tokens, step)
        return Hold.PAGES if step.preempted else None  # after a preemption the sequence found no page after all

    def _why_full(self, step: PlanInWork) -> Hold:
        """Returns why the first waiting sequence is not in this step, which takes no more sequences."""
        if step.preempted:
            return Hold.PAGES
        if len(self._queues.running) >= self._limits.max_sequences:
            return Hold.SEQUENCES
        return Hold.TOKENS if step.load.num_tokens >= self._limits.max_step_tokens else Hold.OBJECTIVE

    def _commit_one(
        self, sequence: Sequence, planned: PlannedSequence, result: StepResult, now: float, events: list[Event]
    ) -> None:
        """Take in one sequence's part of a step; its events go to the end of `events`."""
        request_id = planned.request.request_id
        if result.failed and request_id in result.failed:
            events.append(self._end(sequence, Ending(FinishReason.ERROR, error=result.failed[request_id]), now))
            return
        if request_id in result.undone:
            sequence.alone_before, sequence.computed = planned.end, planned.start
            return self._give_up(sequence, request_id)
        if planned.scores:
            sequence.scored = planned.scores.stop
            sequence.pooled = result.pooled.get(request_id, b"")
            logprobs = result.prompt_logprobs.get(request_id, ())
            events.append(PromptEvent(request_id, logprobs, sequence.pooled))
        ending = self._tokens.take(sequence, planned, result.sampled.get(request_id, ()), now, events)
        if planned.draft_token_ids:
            self._settle_guesses(sequence, planned)
        self._cache.commit(request_id, sequence.computed if planned.samples else planned.end, sequence.keys)
        if ending is not None:
            events.append(self._end(sequence, ending, now))

    def _settle_guesses(self, sequence: Sequence, planned: PlannedSequence) -> None:
        """Give back the pages of wrong guesses. In a model with states, a wrong guess resets the state to the one
        before the step, and the right tokens are computed again."""
        request_id, right = planned.request.request_id, sequence.computed == planned.start + planned.num_tokens
        if self._has_states and not right:
            sequence.computed = planned.start
        self._cache.settle_state(request_id, right)
        self._cache.truncate(request_id, sequence.computed)

    def _end(self, sequence: Sequence, ending: Ending, now: float) -> FinishedEvent:
        """End a sequence and return its one terminal event. Its pages are free when this returns."""
        self._queues.remove(sequence)
        self._cache.close(sequence.request.request_id)
        self.spans.left(sequence)
        self._drafts.ended(sequence)
        self._policy.ended(sequence)
        return ending.event(sequence, now)
