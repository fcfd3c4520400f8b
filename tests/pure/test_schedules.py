"""Thousands of random schedules of the pure core, with an executor that invents tokens."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.types.errors import OutOfMemory
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams


class Inventor:
    """The next token is a function of the seed and of all known tokens. It checks every plan and fails one step."""

    def __init__(self, limits: SchedulerLimits, fail_at_step: int = 0) -> None:
        self.limits = limits
        self.fail_at_step = fail_at_step
        self.failed: set[str] = set()
        self.begun: deque[Plan] = deque()
        self.most_begun = 0

    def begin(self, plan: Plan) -> None:
        """Takes a plan in flight. Its content must not depend on a result that is still to come."""
        self.begun.append(plan)
        self.most_begun = max(self.most_begun, len(self.begun))
        sampled = [s.request.request_id for each in self.begun for s in each.sequences if s.samples]
        assert len(set(sampled)) == len(sampled)

    def execute(self, plan: Plan) -> StepResult:
        assert self.begun.popleft() is plan
        assert 0 < plan.num_tokens <= self.limits.max_step_tokens
        assert len(plan.sequences) <= self.limits.max_sequences
        written: set[tuple[int, int]] = set()
        sampled, failed = {}, {}
        for s in plan.sequences:
            end = s.start + s.num_tokens
            assert s.num_tokens > 0 and len(s.page_ids) * 4 >= end and s.samples == (end == len(s.known_token_ids))
            slots = {(s.page_ids[p // 4], p % 4) for p in range(s.start, end)}
            assert not slots & written
            written |= slots
            if plan.step_id == self.fail_at_step:
                failed[s.request.request_id] = "asked to fail"
            elif s.samples:
                data = repr((s.request.seed, list(s.known_token_ids))).encode()
                sampled[s.request.request_id] = (SampledToken(zlib.crc32(data) % 50),)
        self.failed |= set(failed)
        return StepResult(sampled, failed)


def run(
    requests: list[tuple[int, Request]], pages: int, limits: SchedulerLimits, aborts: dict[int, str], fail_at: int = 0
) -> tuple[dict[str, list[int]], dict[str, FinishReason], Scheduler]:
    """Runs until nothing is left, and checks every invariant after every step. As many plans are in flight as the
    limits allow."""
    cache = CacheManager(pages, 4)
    scheduler = Scheduler(cache, limits)
    inventor = Inventor(limits, fail_at)
    core = EngineCore(scheduler, inventor, flight=PlansInFlight(limits.plans_in_flight, inventor.begin))
    waiting = sorted(requests, key=lambda pair: pair[0])
    tokens: dict[str, list[int]] = {r.request_id: [] for _, r in requests}
    ended: dict[str, FinishReason] = {}
    for index in range(20_000):
        while waiting and waiting[0][0] <= index:
            scheduler.add(waiting.pop(0)[1])
        events = list(scheduler.abort(aborts[index], 0.0)) if index in aborts else []
        step = core.step(lambda: 0.0)
        events += step.events if step else ()
        for event in events:
            assert event.request_id not in ended
            if isinstance(event, FinishedEvent):
                ended[event.request_id] = event.reason
            elif isinstance(event, TokenEvent):
                tokens[event.request_id].append(event.token_id)
        cache.check()
        gauges = scheduler.gauges()
        assert gauges.pages_free + gauges.pages_used + gauges.pages_cached == pages
        if not waiting and not core.has_work:
            break
        assert step is not None or waiting, "work is left and nothing can be planned"
    gauges = scheduler.gauges()
    assert (gauges.running, gauges.waiting, gauges.pages_used, gauges.waste_tokens) == (0, 0, 0, 0)
    cache.drop_cached()
    assert cache.pages_free == pages
    assert set(ended) == set(tokens)
    return tokens, ended, scheduler


def random_requests(dice: random.Random) -> list[tuple[int, Request]]:
    stem = [dice.randrange(50) for _ in range(30)]
    made = []
    for group in range(dice.randint(1, 8)):
        prompt = (*stem[: dice.choice([0, 5, 16, 30])], *(dice.randrange(50) for _ in range(dice.randint(1, 25))))
        params = SamplingParams(min_tokens=dice.choice([0, 0, 5]))
        ends = frozenset(dice.sample(range(50), dice.choice([0, 3])))
        at, size, priority = dice.randint(0, 20), dice.randint(5, 30), dice.choice([0, 0, 1])
        for sibling in range(dice.choice([1, 1, 2, 4])):
            name = f"{group}/{sibling}"
            salt = dice.choice(["", "b"])
            seed = dice.getrandbits(60)
            request = Request(name, str(group), prompt, params, seed, size, ends, 0.0, salt, priority)
            made.append((at, request))
    return made


@settings(max_examples=examples(400), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_schedule_gives_the_solo_tokens_and_leaves_nothing_behind(seed: int) -> None:
    dice = random.Random(seed)
    requests = random_requests(dice)
    limits = SchedulerLimits(dice.choice([1, 7, 30, 500]), 1, dice.choice([0, 2]))
    sequences, plans = min(limits.max_step_tokens, dice.choice([1, 3, 64])), dice.choice([1, 1, 2, 3, 4])
    limits = SchedulerLimits(limits.max_step_tokens, sequences, 0, plans_in_flight=plans)
    longest = max(len(r.prompt_token_ids) + r.max_tokens for _, r in requests)
    pages = longest // 4 + 2 + dice.choice([0, 1, 10, 100])
    aborts = {dice.randint(0, 60): dice.choice(requests)[1].request_id for _ in range(dice.choice([0, 0, 3]))}
    found, ended, _ = run(requests, pages, limits, aborts)
    for _, request in requests:
        alone, reason, _ = run([(0, request)], 100, SchedulerLimits(500, 1), {})
        name = request.request_id
        if ended[name] is FinishReason.ABORT:
            assert found[name] == alone[name][: len(found[name])]
        else:
            assert (found[name], ended[name]) == (alone[name], reason[name])


def test_a_step_that_fails_ends_its_requests_alone() -> None:
    dice = random.Random(4)
    requests = random_requests(dice) + [(60, r) for _, r in []]
    for fail_at in range(1, 60):
        _, ended, _ = run(requests, 60, SchedulerLimits(30, 2), {}, fail_at)
        survivors = [name for name, reason in ended.items() if reason is not FinishReason.ERROR]
        solo = {r.request_id: run([(0, r)], 100, SchedulerLimits(500, 1), {})[0][r.request_id] for _, r in requests}
        found = run(requests, 60, SchedulerLimits(30, 2), {}, fail_at)[0]
        assert all(found[name] == solo[name] for name in survivors)


def test_a_request_that_can_never_fit_is_refused_and_one_that_outgrows_the_pool_ends_alone() -> None:
    def request(name: str, length: int, size: int) -> Request:
        return Request(name, name, tuple(range(length)), SamplingParams(), 1, size, frozenset(), 0.0)

    with pytest.raises(OutOfMemory, match="100 tokens"):
        Scheduler(CacheManager(10, 4), SchedulerLimits()).add(request("big", 100, 4))
    requests = [(0, request("growing", 30, 50)), (0, request("small", 5, 4))]
    found, ended, _ = run(requests, 10, SchedulerLimits(50, 4), {})
    assert ended == {"growing": FinishReason.ERROR, "small": FinishReason.LENGTH}
    assert len(found["growing"]) == 10


def test_preemption_happens_and_siblings_share_their_prompt() -> None:
    prompt = tuple(range(40))
    ids = range(4)
    made = [Request(str(i), "g", prompt, SamplingParams(), i, 30, frozenset(), 0.0) for i in ids]
    _, _, scheduler = run([(0, r) for r in made], 30, SchedulerLimits(64, 8, 0), {})
    assert scheduler.gauges().preemptions_total > 0
    assert scheduler.gauges().prefix_hit_tokens >= 3 * 36


def test_kv_waste_stays_under_four_percent() -> None:
    dice = random.Random(1)
    cache = CacheManager(2000, 16)
    limits = SchedulerLimits(512, 16)
    scheduler = Scheduler(cache, limits)
    for i in range(40):
        prompt = tuple(dice.randrange(10**6) for _ in range(dice.randint(150, 600)))
        scheduler.add(Request(str(i), str(i), prompt, SamplingParams(), i, dice.randint(50, 200), frozenset(), 0.0))
    held = wasted = 0
    while (plan := scheduler.schedule(0.0)) is not None:
        tokens = {s.request.request_id: (SampledToken(3),) for s in plan.sequences if s.samples}
        scheduler.commit(plan, StepResult(tokens), 0.0)
        gauges = scheduler.gauges()
        held += gauges.pages_used * 16
        wasted += gauges.waste_tokens
    print(f"KV waste {wasted / held:.2%}")
    assert wasted / held < 0.04


def test_the_pure_rooms_load_no_numpy() -> None:
    rooms = (
        "types.plan types.spec.rope ops.program.program cost.memory engine.cache.manager engine.scheduler.scheduler "
        "engine.core engine.executor"
    ).split()
    code = "import sys\n" + "".join(f"import twostroke.{room}\n" for room in rooms)
    code += "sys.exit('numpy' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
