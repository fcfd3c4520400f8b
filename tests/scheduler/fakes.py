"""Cost models with made-up times, and a driver of the pure core under a virtual clock that keeps a record."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from twostroke.cost.shape import Bound, PartPrediction, StepPrediction
from twostroke.cost.shape import Part as CostPart
from twostroke.cost.work import Work
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.engine.scheduler.policy import Policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.types.errors import Overloaded
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

PAGE = 4
GREEDY = SamplingParams(temperature=0.0)


@dataclass
class LineCost:
    """step_s for each step, row_s for each row, stream_s for each sequence. jagged: whether times vary with the number
    of rows."""

    step_s: float = 0.010
    row_s: float = 0.0001
    stream_s: float = 0.0005
    jagged_s: float = 0.0
    calls: int = 0

    def seconds(self, segments: Sequence[CostPart]) -> float:
        rows = sum(segment.num_tokens for segment in segments)
        wobble = zlib.crc32(rows.to_bytes(8, "little")) / 2**32 * self.jagged_s
        return self.step_s + self.row_s * rows + self.stream_s * len(segments) + wobble

    def predict(self, segments: Sequence[CostPart]) -> StepPrediction:
        self.calls += 1
        return StepPrediction((PartPrediction("host", self.seconds(segments), Work(), Bound.HOST),))


def request(
    number: int, prompt: int, output: int, arrival_s: float = 0.0, priority: int = 0, group: str | None = None
) -> Request:
    name = str(number)
    ids = tuple(range(number * 10_000, number * 10_000 + prompt))
    return Request(name, group or name, ids, GREEDY, number, output, frozenset(), arrival_s, priority=priority)


@dataclass
class Part:
    """A planned sequence as it was before the step's commit."""

    name: str
    priority: int
    start: int
    num_tokens: int
    outputs: int
    role: Role

    @property
    def prefill(self) -> bool:
        return self.role is Role.PREFILL


@dataclass
class StepNote:
    """One step and its length."""

    parts: list[Part]
    seconds: float

    @property
    def num_tokens(self) -> int:
        return sum(part.num_tokens for part in self.parts)


@dataclass
class World:
    """A scheduler, a clock that advances by `truth`, and a record of what happened."""

    policy: Policy | None
    limits: SchedulerLimits
    truth: LineCost
    pages: int = 4000
    now_s: float = 0.0
    steps: list[StepNote] = field(default_factory=list)
    tokens: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    ended: dict[str, FinishReason] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    refused_at_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = CacheManager(self.pages, PAGE)
        self.scheduler = Scheduler(self.cache, self.limits, self.policy)

    def add(self, asked: Request) -> bool:
        """Adds a request. Returns False where it is refused."""
        self.tokens[asked.request_id] = []
        try:
            self.scheduler.add(asked)
        except Overloaded as error:
            self.refused[asked.request_id] = error.retry_after_s
            self.refused_at_s[asked.request_id] = self.now_s
            return False
        return True

    def step(self) -> StepNote | None:
        plan = self.scheduler.schedule(self.now_s)
        if plan is None:
            return None
        assert plan.num_tokens <= self.limits.max_step_tokens and len(plan.sequences) <= self.limits.max_sequences
        seconds = self.truth.seconds(plan.sequences)
        note = StepNote([part_of(s) for s in plan.sequences], seconds)
        self.now_s += seconds
        made = {}
        for s in plan.sequences:
            if s.samples:
                data = repr((s.request.seed, list(s.known_token_ids))).encode()
                made[s.request.request_id] = (SampledToken(zlib.crc32(data) % 50),)
        for event in self.scheduler.commit(plan, StepResult(made, model_s=seconds), self.now_s):
            assert event.request_id not in self.ended
            if isinstance(event, TokenEvent):
                self.tokens[event.request_id].append((event.token_id, self.now_s))
            elif isinstance(event, FinishedEvent) and event.retry_after_s is not None:
                assert not self.tokens[event.request_id], "a request that has a token is not refused"
                self.refused[event.request_id] = event.retry_after_s
                self.refused_at_s[event.request_id] = self.now_s
            elif isinstance(event, FinishedEvent):
                self.ended[event.request_id] = event.reason
        if self.pages < 1000:
            self.cache.check()
        self.steps.append(note)
        return note

    def run(self, arrivals: Sequence[Request] = (), most_steps: int = 100_000) -> World:
        """Adds each request at its arrival_s and runs until nothing is left."""
        todo = sorted(arrivals, key=lambda each: each.arrival_s)
        for _ in range(most_steps):
            if todo and not self.scheduler.has_work:
                self.now_s = max(self.now_s, todo[0].arrival_s)
            while todo and todo[0].arrival_s <= self.now_s:
                self.add(todo.pop(0))
            if not todo and not self.scheduler.has_work:
                break
            assert self.step() is not None or todo or not self.scheduler.has_work, "work is left, nothing is planned"
        gauges = self.scheduler.gauges()
        assert (gauges.running, gauges.waiting, gauges.pages_used) == (0, 0, 0)
        return self

    def ttft_s(self, asked: Request) -> float:
        return self.tokens[asked.request_id][0][1] - asked.arrival_s


def part_of(planned: PlannedSequence) -> Part:
    asked = planned.request
    made = planned.num_output_tokens
    return Part(asked.request_id, asked.priority, planned.start, planned.num_tokens, made, planned.role)


def promised(
    ttft_s: float | None = 1.0,
    itl_s: float | None = 0.05,
    *,
    cost: LineCost | None = None,
    limits: SchedulerLimits | None = None,
    truth: LineCost | None = None,
    pages: int = 4000,
) -> World:
    """A world that keeps objectives. `truth` is `cost` unless the model is meant to be wrong."""
    model, sizes = cost or LineCost(), limits or SchedulerLimits(512, 32)
    policy = objective_policy(model, LatencyObjectives(ttft_s, itl_s), sizes, PAGE)
    return World(policy, sizes, truth or model, pages)
