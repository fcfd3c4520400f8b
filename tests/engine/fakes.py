"""An engine whose model is a table: it gives the answer of each prompt, and faults happen on demand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.limits import EngineLimits
from twostroke.engine.resources import Seeds
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.session import Session
from twostroke.engine.step_loop import StepLoop
from twostroke.engine.stepper import Stepper
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.event import FinishedEvent
from twostroke.types.output import Prompt, Timings
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult, TokenLogprob
from twostroke.types.sampling.sampling_params import SamplingParams

from ..text.kinds import make

CONTEXT_TOKENS = 256
NUM_PAGES = 64
PAGE_TOKENS = 16


class Clock:
    """A clock that advances by a millisecond at each reading."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def __call__(self) -> float:
        return next(self._ticks) / 1000


class TableExecutor:
    """Answers with the tokens that `answers` has for the prompt (every completion the same), repeated for ever.

    `before` is called with each plan, and may raise or wait.
    """

    def __init__(self, answers: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        self.answers = dict(answers)
        self.before: Callable[[Plan], None] = lambda plan: None
        self.fail_one: set[str] = set()
        self.num_steps = 0
        self.stepped = threading.Event()

    def execute(self, plan: Plan) -> StepResult:
        self.num_steps += 1
        self.before(plan)
        sampled, failed = {}, {}
        for sequence in plan.sequences:
            request = sequence.request
            if request.group_id in self.fail_one:
                failed[request.request_id] = "sampling failed"
            elif sequence.samples:
                answer = self.answers[request.prompt_token_ids]
                token_id = answer[sequence.num_output_tokens % len(answer)]
                logprob = None if request.params.logprobs is None else TokenLogprob(token_id, -0.5)
                sampled[request.request_id] = (SampledToken(token_id, logprob),)
        self.stepped.set()
        return StepResult(sampled, failed)


@dataclass
class Counting:
    """An observer that counts."""

    steps: int = 0
    ttft_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    finished: list[tuple[FinishedEvent, Timings]] = field(default_factory=list)

    def on_step(self, plan: Plan, result: StepResult, duration_s: float) -> None:
        self.steps += 1

    def on_first_token(self, ttft_s: float) -> None:
        self.ttft_s.append(ttft_s)

    def on_next_tokens(self, gaps_s: Sequence[float]) -> None:
        self.itl_s.extend(gaps_s)

    def on_finish(self, finished: FinishedEvent, timings: Timings) -> None:
        self.finished.append((finished, timings))


@dataclass
class Bench:
    """All parts of one engine under test."""

    tokenizer: Tokenizer
    executor: TableExecutor
    session: Session
    stepper: Stepper
    observer: Counting
    faults: list[BaseException]

    def prompt(self, text: str, answer: str | Sequence[int], **params: object) -> Prompt:
        """A prompt that will be answered with `answer`."""
        ids = tuple(self.tokenizer.encode_rendered(text))
        self.executor.answers[ids] = self.tokenizer.encode_rendered(answer) if isinstance(answer, str) else answer
        return Prompt(ids, SamplingParams(**params))  # type: ignore[arg-type]

    def is_empty(self) -> bool:
        """Whether nothing of any request is left."""
        gauges = self.stepper.gauges()
        live = gauges.running or gauges.waiting or gauges.pages_used or gauges.waste_tokens
        return not live and self.session.num_live == 0 and not self.stepper.has_work


def bench(kind: str = "byte_level", num_pages: int = NUM_PAGES, end_ids: frozenset[int] | None = None) -> Bench:
    """A fresh engine over the tokenizer of this kind."""
    tokenizer = make(kind)
    executor, observer, faults = TableExecutor({}), Counting(), []
    ends = tokenizer.end_token_ids if end_ids is None else end_ids
    limits = SchedulerLimits(max_step_tokens=64, max_sequences=16)
    scheduler = Scheduler(CacheManager(num_pages, PAGE_TOKENS), limits)
    session = Session(
        scheduler,
        tokenizer,
        EngineLimits(CONTEXT_TOKENS, tokenizer.vocab_size, num_pages * PAGE_TOKENS, ends),
        seeds=Seeds(itertools.count(100).__next__, lambda seed, index: seed + index),
        observer=observer,
    )
    stepper = Stepper(StepLoop(scheduler, executor, Clock(), faults.append), session)
    return Bench(tokenizer, executor, session, stepper, observer, faults)
