"""One random schedule from one seed: the production core, faults, and every invariant after every step.

outcome = World(seed).run()        # raises AssertionError where an invariant is broken
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.faults.beams import Offering, expected_beams, some_searches
from tests.faults.drawn_parts import make_pools, make_prompts
from tests.faults.expected import Expected, Letters, expected
from tests.faults.fairness import Fairness
from tests.faults.faulty import Fault, FaultRates, FaultyExecutor, InjectedFault
from tests.faults.guesses import Seer
from tests.faults.heard import HeardScheduler
from tests.faults.memory import VOCAB_SIZE, CheckedExecutor, Memory, Watched, token_behind
from twostroke.cost.shape import Bound, PartPrediction, Segment, StepPrediction
from twostroke.cost.work import Work
from twostroke.engine.beams.book import BeamBook
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.faults.isolate import IsolatingExecutor
from twostroke.engine.limits import EngineLimits
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.engine.resources import Seeds
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.session import Session
from twostroke.engine.step_loop import MAX_FAULTS_IN_A_ROW, StepLoop
from twostroke.engine.stepper import Stepper
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.predicted import PredictedExecutor
from twostroke.runner.sampling.random_draw import sibling_seed
from twostroke.text.stop_text import stop_text
from twostroke.types.errors import EngineStopped, InvalidRequest
from twostroke.types.event import FinishedEvent
from twostroke.types.output import Delta, Prompt, Timings
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import StepResult

CONTEXT_TOKENS = 64
MAX_STEPS = 20_000
SMALL_S = 1e-9

RATES = (
    *(FaultRates(0.0),) * 3,
    FaultRates(0.03),
    FaultRates(0.15, (Fault.FAIL_ONE, Fault.LOSE_TOKEN, Fault.DELAY, Fault.ABORT)),
    FaultRates(0.6, (Fault.RAISE_BEFORE, Fault.RAISE_AFTER, Fault.DELAY)),
)

Key = tuple[str, int]


class RowCost:
    """A StepCost of a millisecond for each row."""

    def predict(self, segments: tuple[Segment, ...]) -> StepPrediction:
        """See StepCost."""
        rows = sum(segment.num_tokens for segment in segments)
        return StepPrediction((PartPrediction("weights", rows / 1000, Work(), Bound.MEMORY),))


@dataclass
class Answer:
    """The answer of one completion."""

    prompt: Prompt
    deltas: list[Delta] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """The result of a run, for checks of the whole suite that the interesting events happened."""

    steps: int
    reasons: Counter[FinishReason]
    preemptions: int
    prefix_hits: int
    refused: int
    stopped: bool
    max_steps_lived: int
    allocations: int
    guessed: int
    accepted: int
    searched: int


@dataclass
class Watcher:
    """The engine's observer. It checks that each completion has one terminal event and that times never go back."""

    finished: Counter[Key]
    last_s: float = 0.0

    def on_step(self, plan: Plan, result: StepResult, duration_s: float) -> None:
        assert duration_s >= 0

    def on_first_token(self, ttft_s: float) -> None:
        assert ttft_s >= 0

    def on_next_tokens(self, gaps_s: Sequence[float]) -> None:
        assert min(gaps_s) >= 0

    def on_finish(self, finished: FinishedEvent, timings: Timings) -> None:
        group, _, index = finished.request_id.rpartition("/")
        self.finished[group, int(index)] += 1
        assert finished.at_s >= self.last_s
        self.last_s = finished.at_s
        assert timings.parts is not None and finished.at_s == timings.finished_s
        assert min(timings.parts.by_name().values()) > -SMALL_S
        assert abs(timings.parts.total_s - (finished.at_s - timings.arrival_s)) < SMALL_S, "seconds without a name"


class World:
    """All parts of one schedule. say: gets a line for each event (for `replay`)."""

    def __init__(
        self,
        seed: int,
        rates: FaultRates | None = None,
        allocation_fails: Callable[[int], bool] = lambda call: False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        dice = self.dice = random.Random(seed)
        self._say = say
        self.page_tokens = dice.choice([2, 4, 4])
        step_tokens = dice.choice([1, 5, 12, 40, 200])
        guesses = random.Random(-2 - seed)
        sequences, watermark = min(step_tokens, dice.choice([1, 3, 8])), dice.choice([0, 0, 2])
        plans = random.Random(-4 - seed).choice([1, 1, 2, 3])
        self.limits = SchedulerLimits(
            step_tokens, sequences, watermark, guesses.choice([0, 0, 1, 4, 20]), plans_in_flight=plans
        )
        self.end_ids = frozenset(dice.sample(range(VOCAB_SIZE), dice.choice([0, 2])))
        self.prompts = some_searches(random.Random(-3 - seed), make_prompts(dice))
        self.searches = any(prompt.params.use_beam_search for _, prompt in self.prompts)
        longest = max(len(prompt.token_ids) + (prompt.params.max_tokens or 0) for _, prompt in self.prompts)
        self.num_pages = max(1, -(-longest // self.page_tokens) + dice.choice([-1, 0, 1, 1, 3, 30]))
        hang_ups = dice.choice([0, 0, 0, 2])
        self.hang_ups = {dice.randint(0, 40): dice.choice(self.prompts)[1] for _ in range(hang_ups)}
        self.clock = VirtualClock()
        self.pools = make_pools(random.Random(-1 - seed), self.num_pages, self.page_tokens, self.limits)
        self.cache = CacheManager(self.pools, self.page_tokens)
        self.allocations = self._instrument(allocation_fails)
        self.seer = Seer(token_behind, guesses.choice([0.0, 0.5, 0.9, 1.0]), guesses, VOCAB_SIZE)
        self.scheduler = Scheduler(self.cache, self.limits, drafter=self.seer)
        self.fairness = Fairness(self.scheduler, self.page_tokens)
        self.engine_limits = EngineLimits(CONTEXT_TOKENS, VOCAB_SIZE, self.cache.most_positions, self.end_ids)
        self.watcher = Watcher(Counter())
        self.heard = HeardScheduler(BeamBook(self.scheduler, partial(stop_text, Letters())))
        self.session = Session(
            self.heard,
            Letters(),
            self.engine_limits,
            seeds=Seeds(lambda: 1, sibling_seed),
            observer=self.watcher,
        )
        memory = Memory(self.page_tokens, self.pools, self._lives)
        honest = Offering(PredictedExecutor(RowCost(), self.clock, memory.next_token), memory.last_chain)
        checked = CheckedExecutor(honest, memory, self.limits)
        rates = rates or dice.choice(RATES)
        self.executor = FaultyExecutor(checked, self.clock, rates, dice, self._hang_up_completion)
        # In half of the worlds with states, a step that fails is computed again from snapshots, and its sequences go
        # on.
        isolated = self.pools.state_slots > 0 and guesses.random() < 0.5
        stepped = IsolatingExecutor(self.executor, only_injected) if isolated else self.executor
        watched = Watched(stepped, self._watch)
        flight = PlansInFlight(plans)
        self.stepper = Stepper(StepLoop(self.heard, watched, self.clock, only_injected, flight=flight), self.session)
        self.open: dict[Key, Answer] = {}
        self.closed: list[tuple[Key, Answer]] = []
        self.asked: Counter[Key] = Counter()
        self.hung_up: set[str] = set()
        self.refused = 0
        self.steps = 0

    def run(self) -> Outcome:
        """Runs until nothing is left."""
        due = sorted(self.prompts, key=lambda pair: pair[0])
        stopped = False
        for turn in range(MAX_STEPS):
            while due and due[0][0] <= turn:
                self._submit(due.pop(0)[1])
            if turn in self.hang_ups:
                self._hang_up(self.hang_ups[turn].request_id or "")
            injected = self.allocations["failed"]
            try:
                deltas = self.stepper.step()
            except EngineStopped:
                assert self.executor.raised >= MAX_FAULTS_IN_A_ROW
                stopped = True
                break
            self.steps += deltas is not None
            self._take(deltas or [])
            self._check_counts()
            if not due and not self.stepper.has_work:
                break
            self.clock.advance(0.001)
            progress = deltas is not None or due or self.allocations["failed"] > injected
            assert progress, "work is left and nothing can be planned"
        else:
            raise AssertionError("the schedule does not end")
        self._check_end(stopped)
        return self._outcome(stopped)

    def _submit(self, prompt: Prompt) -> None:
        name = prompt.request_id or ""
        try:
            self.stepper.submit(prompt)
        except InvalidRequest as error:
            self.refused += 1
            self._say(f"{name} refused: {error}")
            return
        self._say(f"{name} submitted: {len(prompt.token_ids)} tokens, n={prompt.params.n}, {prompt.params.max_tokens=}")
        for index in range(prompt.params.n):
            self.open[name, index] = Answer(prompt)
            self.asked[name, index] += 1

    def _hang_up(self, name: str) -> None:
        self._say(f"{name} hangs up")
        self.hung_up.add(name)
        self._take(self.stepper.abort(name))

    def _lives(self, request: Request) -> bool:
        sequence = self.scheduler._queues.find(request.request_id)
        return sequence is not None and sequence.request is request

    def _hang_up_completion(self, request_id: str) -> None:
        self._hang_up(request_id.rpartition("/")[0])

    def _watch(self, plan: Plan) -> None:
        for each in plan.sequences:
            self._say(
                f"  step {plan.step_id}: {each.request.request_id} [{each.start}, {each.start + each.num_tokens})"
                f" pages {[list(table) for table in each.tables]}{' samples' if each.samples else ''}"
            )
        if plan.preemptions:
            self._say(f"  step {plan.step_id}: preempted {[each.request_id for each in plan.preemptions]}")
        # The proof covers sequences that need no other one to go on, and one plan at a time.
        if not self.searches and self.limits.plans_in_flight == 1:
            self.fairness.watch(plan)

    def _take(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            key = (delta.request_id, delta.index)
            assert key in self.open, f"{key} speaks after its end"
            self.open[key].deltas.append(delta)
            if delta.finish_reason is not None:
                self._say(f"{key} ended: {delta.finish_reason}")
                self.closed.append((key, self.open.pop(key)))

    def _check_counts(self) -> None:
        self.cache.check()
        gauges = self.scheduler.gauges()
        assert gauges.pages_free + gauges.pages_used + gauges.pages_cached == self.cache.num_pages
        assert min(gauges.pages_free, gauges.pages_used, gauges.pages_cached, gauges.waste_tokens) >= 0
        assert len(self.open) == self.session.num_live
        live = gauges.running + gauges.waiting
        assert live <= len(self.open) if self.searches else live == len(self.open)  # some beams have no sequence yet
        assert gauges.running <= self.limits.max_sequences or self.searches  # copies of beams run at once, in turn

    def _check_end(self, stopped: bool) -> None:
        if stopped:  # the asynchronous shell does it in the same way
            for name in {name for name, _ in self.open}:
                self.hung_up.add(name)
                self.stepper.abort(name)
            self.open.clear()
        gauges = self.scheduler.gauges()
        assert self.session.num_live == 0 and not self.open
        assert (gauges.running, gauges.waiting, gauges.pages_used, gauges.waste_tokens) == (0, 0, 0, 0)
        self.cache.check()
        self.cache.drop_cached()
        assert self.cache.pages_free == self.cache.num_pages
        assert self.cache.states is None or self.cache.states.pool.num_free == self.pools.state_slots
        assert self.heard.ended == self.heard.added
        assert self.watcher.finished == self.asked, "each completion has exactly one terminal event"
        assert not self.seer.known, "the drafter hears of each end"
        self.fairness.close()
        for key, answer in self.closed:
            self._check_answer(key, answer.prompt, answer.deltas)

    def _check_answer(self, key: Key, prompt: Prompt, deltas: list[Delta]) -> None:
        """Checks that the pieces are those of the definition, or their beginning where the completion was cut short."""
        name, index = key
        right = self._right(prompt, index)
        found = tuple(token_id for delta in deltas for token_id in delta.token_ids)
        text = "".join(delta.text for delta in deltas)
        last = deltas[-1]
        assert last.finish_reason is not None
        assert sum(delta.finish_reason is not None for delta in deltas) == 1
        if last.finish_reason is FinishReason.ABORT:
            assert name in self.hung_up
        elif last.finish_reason is FinishReason.ERROR:
            members = range(prompt.params.n) if prompt.params.use_beam_search else [index]
            assert any(f"{name}/{member}" in self.executor.touched for member in members)
        else:
            assert (found, text, last.finish_reason) == (right.token_ids, right.text, right.reason)
            assert last.num_output_tokens == right.num_output_tokens
            return
        self._check_beginning(found, right)

    def _right(self, prompt: Prompt, index: int) -> Expected:
        max_tokens = self.engine_limits.check(prompt)
        if prompt.params.use_beam_search:
            return expected_beams(prompt, max_tokens, self.end_ids)[index]
        return expected(prompt, index, max_tokens, self.end_ids)

    def _check_beginning(self, found: tuple[int, ...], right: Expected) -> None:
        # The text of a cut completion may contain the beginning of a stop string that was never completed.
        common = min(len(found), len(right.token_ids))
        assert found[:common] == right.token_ids[:common]
        assert len(found) <= right.num_output_tokens

    def _outcome(self, stopped: bool) -> Outcome:
        gauges: Gauges = self.scheduler.gauges()
        self._check_preemptions(gauges)
        reasons = Counter(answer.deltas[-1].finish_reason for _, answer in self.closed)
        return Outcome(
            self.steps,
            Counter({reason: count for reason, count in reasons.items() if reason is not None}),
            gauges.preemptions_total,
            gauges.prefix_hit_tokens,
            self.refused,
            stopped,
            self.fairness.max_steps,
            self.allocations["calls"],
            self.seer.guessed,
            self.seer.accepted,
            sum(
                answer.prompt.params.use_beam_search and answer.deltas[-1].score is not None
                for _, answer in self.closed
            ),
        )

    def _check_preemptions(self, gauges: Gauges) -> None:
        """Checks that a request has at most one preemption between two outputs or ends
        (docs/proofs/no-starvation.md)."""
        outputs = sum(answer.deltas[-1].num_output_tokens for _, answer in self.closed)
        intervals = outputs + self.asked.total() + 1
        if not (self.executor.raised or self.searches):  # a beam also gives way when no page is left for a copy
            assert gauges.preemptions_total <= self.limits.max_sequences * intervals + self.allocations["failed"]

    def _instrument(self, fails: Callable[[int], bool]) -> dict[str, int]:
        """Wraps `allocate` of each pool of pages: counts the calls, and reports no page where `fails(call)`."""
        counts = {"calls": 0, "failed": 0}

        def instrumented(real: Callable[[], int | None]) -> Callable[[], int | None]:
            def allocate() -> int | None:
                counts["calls"] += 1
                if fails(counts["calls"]):
                    counts["failed"] += 1
                    return None
                return real()

            return allocate

        for group in self.cache.groups:
            group.pool.allocate = instrumented(group.pool.allocate)  # type: ignore[method-assign]
        return counts


def only_injected(error: BaseException) -> None:
    """The stepper catches any error of an executor. So an error that no fault has injected is a finding."""
    if not isinstance(error, InjectedFault):
        raise error
