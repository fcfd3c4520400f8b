"""Python's share of a step, timed on the real engine with the embedded model: schedule, batch, sample, commit.

The embedded model is small enough that its own time can be taken away without an error that matters.

Knows: assemble, the observer, the sampler.
Must not know: kernels.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from twostroke.assemble import EMBEDDED, build_heart, find_model
from twostroke.cost.calibration import HostRates
from twostroke.engine.observer import Nobody
from twostroke.engine.sync_engine import SyncEngine
from twostroke.planner.doctor.stopwatch import Stopwatch
from twostroke.runner.batch_builder import BatchBuilder
from twostroke.sampling.sampler import sample
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import Request
from twostroke.types.result import StepResult
from twostroke.types.sampling_params import SamplingParams

FEW, MANY = 1, 16
STEPS, CONTEXT = 32, 512
SHORT, LONG, PROMPTS = 32, 480, 12
SMALL_VOCABULARY, LARGE_VOCABULARY = 1 << 10, 1 << 17


class HostMeter(Nobody):
    """An observer that keeps what lies between two decode steps beside the model, the reader's turn included."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s: float | None = None
        self.seconds: list[float] = []
        self.prompt_seconds: list[float] = []

    def forget(self) -> None:
        """Begin anew."""
        self._last_s = None
        self.seconds.clear()
        self.prompt_seconds.clear()

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """The model's time includes making the batch, which is timed apart."""
        before, self._last_s = self._last_s, self._clock()
        if plan.num_tokens > len(plan.sequences):
            self.prompt_seconds.append(duration_s - result.model_s)
        if before is not None and plan.num_tokens == len(plan.sequences):
            self.seconds.append(self._last_s - before - result.model_s)


def measure_host(threads: int, clock: Callable[[], float]) -> HostRates:
    """Of a step, of a sequence, of a logit of a sampled row; of a prompt and of its rows, in seconds."""
    meter = HostMeter(clock)
    options = {
        **{"threads": threads, "cache": "off", "weights": "f32", "kv_memory": "64MB"},
        **{"context": CONTEXT + STEPS, "max_sequences": MANY},
    }
    with build_heart(find_model(EMBEDDED, options), None, lambda sentence: None, meter) as heart:
        engine = SyncEngine(heart.stepper)
        vocabulary = heart.spec.vocab_size
        step_s = {}
        for streams in (FEW, MANY):
            prompts = [_prompt(number) for number in range(streams)]
            engine.generate(prompts)  # reads the prompts: below they lie in the cache and the streams begin together
            meter.forget()
            for _ in engine.stream(prompts):
                pass
            step_s[streams] = _mean_of_most(meter.seconds)
        prompt_s = {rows: _prompt_step_s(engine, meter, rows) for rows in (SHORT, LONG)}
    watch = Stopwatch(clock, 0.01)
    batch_s = {streams: _batch_s(watch, [_planned(index, 1) for index in range(streams)]) for streams in (FEW, MANY)}
    for rows in prompt_s:
        prompt_s[rows] += _batch_s(watch, [_planned(0, rows)])
    small_s, large_s = (_sample_s(watch, size) for size in (SMALL_VOCABULARY, LARGE_VOCABULARY))
    logit_s = max(0.0, large_s - small_s) / (LARGE_VOCABULARY - SMALL_VOCABULARY)
    total = {streams: step_s[streams] + batch_s[streams] for streams in (FEW, MANY)}
    sequence_s = max(0.0, total[MANY] - total[FEW]) / (MANY - FEW)
    fixed_s = max(0.0, total[FEW] - sequence_s * FEW)
    row_s = max(0.0, prompt_s[LONG] - prompt_s[SHORT]) / (LONG - SHORT)
    beside_s = max(0.0, prompt_s[SHORT] - row_s * SHORT - total[FEW])
    return HostRates(fixed_s, max(0.0, sequence_s - logit_s * vocabulary), logit_s, beside_s, row_s)


def _prompt_step_s(engine: SyncEngine, meter: HostMeter, rows: int) -> float:
    """Beside the model, of a step that reads a prompt like no other."""
    meter.forget()
    for number in range(PROMPTS):
        ids = tuple(random.Random(f"{rows} {number}").choices(range(100, 1000), k=rows))
        engine.generate([Prompt(ids, SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True))])
    return statistics.median(meter.prompt_seconds)


def _mean_of_most(times: Sequence[float]) -> float:
    """The mean, not the median, because Python's turns now and then take longer; but without a few that others took."""
    most = sorted(times)[: max(1, len(times) * 19 // 20)]
    return statistics.fmean(most)


def _prompt(number: int) -> Prompt:
    ids = tuple(random.Random(number).choices(range(100, 1000), k=CONTEXT))
    return Prompt(ids, SamplingParams(temperature=0.0, max_tokens=STEPS, ignore_eos=True))


def _planned(index: int, rows: int) -> PlannedSequence:
    params = SamplingParams(temperature=0.0, max_tokens=STEPS, ignore_eos=True)
    known = tuple(range(CONTEXT))
    request = Request(f"r{index}", "", known, params, 0, STEPS, frozenset(), 0.0)
    return PlannedSequence(request, CONTEXT - rows, rows, known, tuple(range(CONTEXT // 16)), True)


def _batch_s(watch: Stopwatch, planned: Sequence[PlannedSequence]) -> float:
    builder = BatchBuilder(CONTEXT, MANY, CONTEXT // 16)
    plan = Plan(0, tuple(planned))
    return watch.seconds([lambda: _discard(builder.build(plan))])


def _sample_s(watch: Stopwatch, vocabulary: int) -> float:
    row, sequence = np.random.default_rng(0).standard_normal(vocabulary, dtype=np.float32), _planned(0, 1)
    return watch.seconds([lambda: _discard(sample(row, sequence))])


def _discard(_made: object) -> None:
    """What is timed gives something that nobody needs."""
