"""Measures what a step takes in addition to its kernels, on the real engine with the embedded model.

Whole steps are timed, and the kernels' times according to their figures are subtracted. The rest has two parts. One is
Python's share: schedule, batch, sample, commit. The other is the additional time that a step's ops take in an engine,
compared with the same ops in a loop. The reasons are caches that Python emptied, and the time until the second thread
is awake. The embedded model is small, so an error in the time of its kernels matters little. It is run in int8, like
most models.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from twostroke.assembly.engine import build_heart
from twostroke.assembly.find import find_model
from twostroke.cost.calibration import Calibration, HostRates
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.engine.observer import NoObserver
from twostroke.engine.stepper import Stepper
from twostroke.engine.sync_engine import SyncEngine
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.doctor.stopwatch import Stopwatch
from twostroke.models.common.work import work_of
from twostroke.ops.attention.token_weights import weigh
from twostroke.runner.sampling.sampler import sample
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.weights.hub.hub import EMBEDDED

FEW, MANY = 1, 16
STEPS, CONTEXT = 64, 512
WEIGHTS = "int8"
SHORT, LONG, PROMPTS = 48, 480, 15
BESIDE, BETWEEN = 32, 12
"""BESIDE: the number of prompt tokens of the stream that decodes while prompts are measured. BETWEEN: the number of
steps from one measured prompt to the next."""
SMALL_VOCABULARY, LARGE_VOCABULARY = 1 << 10, 1 << 17


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds of a whole step (whole_s), and the seconds of it in which the model's program ran (model_s)."""

    whole_s: float
    model_s: float

    def beside(self, kernels_s: float) -> float:
        """Returns the seconds of the step without the predicted seconds of its kernels (kernels_s). At most the
        measured time of the model is subtracted."""
        return self.whole_s - min(kernels_s, self.model_s)


class HostMeter(NoObserver):
    """An observer that records the time of steps. The time of a decode step begins at the end of the step before, so it
    includes the time in which the caller reads the tokens.

    The time of a step that computes a prompt begins when that step begins.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s: float | None = None
        self.decodes: list[Taken] = []
        self.prompts: list[Taken] = []

    def forget(self) -> None:
        """Discards the times recorded so far."""
        self._last_s = None
        self.decodes.clear()
        self.prompts.clear()

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """Records the time of a step among `decodes` when all of its sequences decode, else among `prompts`."""
        before, self._last_s = self._last_s, self._clock()
        if any(sequence.role is Role.PREFILL for sequence in plan.sequences):
            self.prompts.append(Taken(duration_s, result.model_s))
        elif before is not None:
            self.decodes.append(Taken(self._last_s - before, result.model_s))


def measure_host(threads: int, clock: Callable[[], float], kernels: Calibration) -> HostRates:
    """Measures the seconds of a step that its kernels do not explain: a fixed part, and more for each sequence, each
    logit, each prompt and each row of a prompt.

    kernels: the rates of the kernels, measured with the same number of threads; its host rates are zero.
    """
    meter = HostMeter(clock)
    options = {
        **{"threads": threads, "cache": "off", "weights": WEIGHTS, "kv_memory": "64MB"},
        **{"context": CONTEXT + STEPS, "max_sequences": MANY},
    }
    with build_heart(find_model(EMBEDDED, options), None, lambda sentence: None, meter) as heart:
        engine = SyncEngine(heart.stepper)
        vocabulary = heart.spec.vocab_size
        ask = make_ask(heart.spec, WEIGHTS)
        cost = step_cost(work_of(heart.spec, ask.weights, ask.kv_kind), kernels)
        decodes = {streams: _decode_step(engine, meter, streams) for streams in (FEW, MANY)}
        prompts = {rows: _prompt_step(heart.stepper, meter, rows) for rows in (SHORT, LONG)}
    middle = Segment.decode(CONTEXT + STEPS // 2)
    total = {streams: taken.beside(cost.predict([middle] * streams).seconds) for streams, taken in decodes.items()}
    beside = Segment.decode(2 * BESIDE)
    prompt_s = {
        rows: taken.beside(cost.predict([beside, Segment.prefill(0, rows, True)]).seconds)
        for rows, taken in prompts.items()
    }
    watch = Stopwatch(clock, 0.01)
    small_s, large_s = (_sample_s(watch, size) for size in (SMALL_VOCABULARY, LARGE_VOCABULARY))
    logit_s = max(0.0, large_s - small_s) / (LARGE_VOCABULARY - SMALL_VOCABULARY)
    sequence_s = max(0.0, total[MANY] - total[FEW]) / (MANY - FEW)
    fixed_s = max(0.0, total[FEW] - sequence_s * FEW)
    row_s = max(0.0, prompt_s[LONG] - prompt_s[SHORT]) / (LONG - SHORT)
    beside_s = max(0.0, prompt_s[SHORT] - row_s * SHORT - total[FEW] - sequence_s)
    return HostRates(fixed_s, max(0.0, sequence_s - logit_s * vocabulary), logit_s, beside_s, row_s)


def _decode_step(engine: SyncEngine, meter: HostMeter, streams: int) -> Taken:
    """Measures one decode step of `streams` streams. Their prompts are in the cache already, so that all streams begin
    together."""
    prompts = [_prompt(number) for number in range(streams)]
    engine.generate(prompts)
    meter.forget()
    for _ in engine.stream(prompts):
        pass
    return _mean_of_most(meter.decodes)


def _prompt_step(stepper: Stepper, meter: HostMeter, rows: int) -> Taken:
    """Returns the times of a step that reads one prompt next to a stream that decodes: the median of several prompts.

    All prompts differ, and a few other steps come between two of them. So the data that a prompt's step needs is as
    seldom in caches as in a server. Lengths differ a little around `rows`.
    """
    meter.forget()
    steady = SamplingParams(temperature=0.0, max_tokens=(PROMPTS + 1) * (BETWEEN + 1), ignore_eos=True)
    stepper.submit(Prompt(tuple(range(2, 2 + BESIDE)), steady))
    for _ in range(BETWEEN):
        stepper.step()
    meter.forget()
    for number in range(PROMPTS):
        length = rows - PROMPTS // 2 + number
        ids = tuple(random.Random(f"{rows} {number}").choices(range(100, 1000), k=length))
        stepper.submit(Prompt(ids, SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)))
        for _ in range(BETWEEN):
            stepper.step()
    found = sorted(meter.prompts, key=lambda taken: taken.whole_s)[len(meter.prompts) // 2]
    while stepper.has_work:
        stepper.step()
    return found


def _mean_of_most(times: Sequence[Taken]) -> Taken:
    """Returns the mean times without the slowest twentieth, which other processes disturbed.

    The median would leave out the times at which Python itself takes longer, and these must count.
    """
    most = sorted(times, key=lambda taken: taken.whole_s)[: max(1, len(times) * 19 // 20)]
    return Taken(statistics.fmean(each.whole_s for each in most), statistics.fmean(each.model_s for each in most))


def _prompt(number: int) -> Prompt:
    ids = tuple(random.Random(number).choices(range(100, 1000), k=CONTEXT))
    return Prompt(ids, SamplingParams(temperature=0.0, max_tokens=STEPS, ignore_eos=True))


def _planned() -> PlannedSequence:
    params = SamplingParams(temperature=0.0, max_tokens=STEPS, ignore_eos=True)
    known = tuple(range(CONTEXT))
    request = Request("r0", "", known, params, 0, STEPS, frozenset(), 0.0)
    return PlannedSequence(request, CONTEXT - 1, 1, known, (tuple(range(CONTEXT // 16)),), True, Role.DECODE)


def _sample_s(watch: Stopwatch, vocabulary: int) -> float:
    row, sequence = np.random.default_rng(0).standard_normal(vocabulary, dtype=np.float32), _planned()
    return watch.seconds([lambda: _discard(sample(weigh, row, sequence))])


def _discard(_made: object) -> None:
    """Drops the result of a call that is only timed."""
