"""What the ledger costs a decode step: the embedded model with 1, 8, 32 and 64 sequences, nothing but decode.

    python -m tools.measure_ledger [--sequences 1,8,32,64] [--steps 4000] [--threads 1] [--json]

Inside the running engine, so with the caches as the kernels leave them: a tight loop shows a third of it. Of three
steps in turn, two are measured with their ledger calls between readings of the clock, one with nothing between them;
the difference is what the ledger takes. `usual`: of the medians. `all`: of the means, the work that is put off until a
block of steps is full included; the median over many of them. `tight`: the same calls again and again on one plan.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from twostroke.assembly.engine import Heart, build_heart
from twostroke.assembly.find import find_model
from twostroke.cost.history.ledger import Ledger
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult
from twostroke.types.sampling_params import SamplingParams

CONTEXT, PROMPT_TOKENS, WARM_STEPS = 1024, 16, 64
TURNS = 3  # no divisor of a run's length, so that each step of a run is measured in turn
BLOCK_STEPS = TURNS * 128
TIGHT_CALLS = 20_000


@dataclass
class Readings:
    """Seconds of one number of sequences, one figure a step."""

    step: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)  # the ledger's two calls, clock included
    empty: list[float] = field(default_factory=list)  # the clock's own

    def figures(self) -> dict[str, float]:
        """The times in microseconds, and the ledger's share of a step."""
        step_us, kept_us, empty_us = (1e6 * median(each) for each in (self.step, self.kept, self.empty))
        all_us = 1e6 * median(_means(self.kept, BLOCK_STEPS * (TURNS - 1) // TURNS)) - 1e6 * median(
            _means(self.empty, BLOCK_STEPS // TURNS)
        )
        return {
            "step_us": step_us,
            "usual_us": kept_us - empty_us,
            "all_us": all_us,
            "share": all_us / step_us,
        }


def _means(values: list[float], count: int) -> list[float]:
    return [fmean(values[place : place + count]) for place in range(0, len(values) - count + 1, count)]


class Stopwatch:
    """Stands in the place of a session's ledger and times its calls; the rest is the ledger's."""

    def __init__(self, ledger: Ledger, readings: Readings) -> None:
        self._ledger, self._readings = ledger, readings
        self._turn = 0
        self._kept_s = self._empty_s = 0.0
        self.last: tuple[Plan, StepResult, float, float] | None = None

    def step(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """See Ledger."""
        self.last = (plan, result, begin_s, commit_s)
        keep = self._ledger.step
        if self._turn:
            from_s = time.perf_counter()
            keep(plan, result, begin_s, commit_s)
            self._kept_s = time.perf_counter() - from_s
        else:
            from_s = time.perf_counter()
            self._empty_s = time.perf_counter() - from_s
            keep(plan, result, begin_s, commit_s)

    def close_step(self, end_s: float) -> None:
        """See Ledger."""
        close, readings = self._ledger.close_step, self._readings
        if self._turn:
            from_s = time.perf_counter()
            close(end_s)
            readings.kept.append(self._kept_s + time.perf_counter() - from_s)
        else:
            from_s = time.perf_counter()
            readings.empty.append(self._empty_s + time.perf_counter() - from_s)
            close(end_s)
        self._turn = (self._turn + 1) % TURNS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def prompt(number: int, answer: int) -> Prompt:
    """Like no other."""
    ids = tuple(100 + (number * 131 + i * 17) % 3000 for i in range(PROMPT_TOKENS))
    return Prompt(ids, SamplingParams(temperature=0.0, max_tokens=answer, ignore_eos=True))


def measure(heart: Heart, count: int, steps: int) -> dict[str, float]:
    """`count` sequences decode together for `steps` steps, in rounds that fit into the context."""
    stepper, session, ledger = heart.stepper, heart.session, heart.session.ledger
    readings = Readings()
    watch = Stopwatch(ledger, readings)
    answer = CONTEXT - PROMPT_TOKENS
    while len(readings.step) < steps:
        for number in range(count):
            stepper.submit(prompt(number, answer))
        for _ in range(WARM_STEPS):
            stepper.step()
        session.ledger = watch  # type: ignore[assignment]
        for _ in range(answer - 2 * WARM_STEPS):
            from_s = time.perf_counter()
            stepper.step()
            readings.step.append(time.perf_counter() - from_s)
        session.ledger = ledger
        while stepper.has_work:
            stepper.step()
    if watch.last is None:
        raise SystemExit("no step was made")
    return {"sequences": count, **readings.figures(), "tight_us": 1e6 * tight_s(*watch.last)}


def tight_s(plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> float:
    """Seconds of the two calls with everything in the nearest cache: a fresh ledger hears of one plan all the time."""
    ledger = Ledger()
    for each in plan.sequences:
        ledger.arrive(replace(each.request, arrival_s=begin_s))
    ledger.step(plan, result, begin_s, commit_s)
    ledger.close_step(commit_s)
    from_s = time.perf_counter()
    for _ in range(TIGHT_CALLS):
        ledger.step(plan, result, begin_s, commit_s)
        ledger.close_step(commit_s)
    return (time.perf_counter() - from_s) / TIGHT_CALLS


def run() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sequences", default="1,8,32,64")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    options = {"context": CONTEXT, "threads": asked.threads, "kv_memory": "128MB", "max_sequences": 64}
    found = []
    with build_heart(find_model("spark", options), None, lambda sentence: None) as heart:
        for count in map(int, asked.sequences.split(",")):
            found.append(measure(heart, count, asked.steps))
            if not asked.json:
                one = found[-1]
                print(
                    f"{count:3d} sequences: step {one['step_us']:7.1f} us, ledger {one['usual_us']:5.2f} us usual,"
                    f" {one['all_us']:5.2f} us all ({one['share']:.2%}), {one['tight_us']:5.2f} us tight",
                    flush=True,
                )
    if asked.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    run()
