"""Checks the cost model: the rates of prefill and decode are predicted from the measurements of `twostroke doctor`, and
measured on the real engine."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from twostroke.assembly.settings.env import Moment, others_share, read_moment
from twostroke.cost.calibration import DISTURBED_SHARE, Calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment, StepCost
from twostroke.lab.bench.phases import Note, PhaseBench, PhaseCase, PhasesAsked
from twostroke.llm import LLM
from twostroke.models.common.work import work_of

ROUND_S = 0.3
"""The least seconds of a round. The case is repeated until they have passed, and the median of its rates counts."""

TRIES = 4
"""A round that other programs disturb is repeated, up to this many tries in all. The try that was disturbed least
counts."""

GOAL = 0.15
"""A prediction is good where it differs from the measured value by at most this share."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The predicted and the measured rate of one case, in tokens a second. measured: the median of the rounds.
    others_share: the share of the cores that other programs used meanwhile. parts_s: seconds of each part of the
    predicted steps."""

    weights: str
    phase: str
    streams: int
    tokens: int
    predicted: float
    measured: float
    slowest: float
    fastest: float
    others_share: float
    parts_s: dict[str, float]

    @property
    def ratio(self) -> float:
        """The predicted rate divided by the measured rate; above 1 the prediction is too fast."""
        return self.predicted / self.measured

    @property
    def good(self) -> bool:
        """Whether the prediction differs from the measurement by at most GOAL."""
        return abs(self.ratio - 1) <= GOAL

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison as plain values."""
        return {**asdict(self), "ratio": self.ratio, "good": self.good}


def predicted_steps(cost: StepCost, case: PhaseCase, step_tokens: int, new_tokens: int) -> dict[str, float]:
    """Returns the predicted seconds of each part of a step, such as attention. For prefill they are sums over all steps
    of a prompt. For decode they are those of one step in the middle of the answers."""
    phase, streams, tokens = case
    if phase == "decode":
        steps = [[Segment.decode(tokens + new_tokens // 2)] * streams]
    else:
        starts = range(0, tokens, step_tokens)
        steps = [[Segment.prefill(at, min(step_tokens, tokens - at), at + step_tokens >= tokens)] for at in starts]
    parts: dict[str, float] = {}
    for step in steps:
        for part in cost.predict(step).parts:
            parts[part.name] = parts.get(part.name, 0.0) + part.seconds
    return parts


def compare(
    llm: LLM,
    calibration: Calibration,
    asked: PhasesAsked,
    clock: Callable[[], float],
    note: Note,
    moment: Callable[[], Moment | None] = read_moment,
) -> list[Comparison]:
    """Compares every case on one loaded model. Raises ConfigError for cases longer than its context, and for formats
    that were not measured."""
    resolved = llm.resolved
    weights, step_tokens = resolved.model.weights, resolved.steps.max_step_tokens
    cost = step_cost(work_of(llm.spec, weights, resolved.cache.kind), calibration)
    bench = PhaseBench(llm, clock)
    cases = bench.cases(asked)
    rounds: dict[PhaseCase, list[Round]] = {case: [] for case in cases}
    llm.settle()
    for case in cases:
        bench.speed(case, asked.new_tokens)
    for number in range(asked.rounds):
        for case in cases:
            note(f"{weights}, round {number + 1} of {asked.rounds}: {case[0]}, {case[1]} x {case[2]} tokens")
            rounds[case].append(_quiet_round(partial(bench.speed, case, asked.new_tokens), clock, moment))
    made = []
    for case, found in rounds.items():
        parts = predicted_steps(cost, case, step_tokens, asked.new_tokens)
        tokens = case[1] if case[0] == "decode" else case[2]
        speeds = [each.tokens_per_s for each in found]
        others = statistics.median(each.others_share for each in found)
        reached = (statistics.median(speeds), min(speeds), max(speeds), others)
        made.append(Comparison(weights, *case, tokens / sum(parts.values()), *reached, parts))
    return made


@dataclass(frozen=True, slots=True)
class Round:
    """The measured rate of one round. others_share: the share of the cores that other programs used meanwhile."""

    tokens_per_s: float
    others_share: float


def _quiet_round(speed: Callable[[], float], clock: Callable[[], float], moment: Callable[[], Moment | None]) -> Round:
    """Returns the first of TRIES rounds that no other program disturbed, else the least disturbed one."""
    tried: list[Round] = []
    while len(tried) < TRIES:
        before, began_s = moment(), clock()
        speeds: list[float] = []
        while not speeds or clock() - began_s < ROUND_S:
            speeds.append(speed())
        tried.append(Round(statistics.median(speeds), others_share(before, moment())))
        if tried[-1].others_share <= DISTURBED_SHARE:
            return tried[-1]
    return min(tried, key=lambda each: each.others_share)


def table(found: Sequence[Comparison]) -> list[str]:
    """Returns lines of text with the predicted rates, the measured rates and their ratios."""
    lines = [
        f"{'weights':<8} {'phase':<8} {'streams':>7} {'tokens':>7} {'predicted':>10} {'measured':>10} {'ratio':>6}"
    ]
    for each in found:
        sign = "" if each.good else f"   off by more than {GOAL:.0%}"
        if each.others_share > DISTURBED_SHARE:
            sign += f"   others took {each.others_share:.0%} of the cores"
        lines.append(
            f"{each.weights:<8} {each.phase:<8} {each.streams:>7} {each.tokens:>7,} {each.predicted:>10,.1f} "
            f"{each.measured:>10,.1f} {each.ratio:>6.2f}{sign}"
        )
    good = sum(each.good for each in found)
    return [*lines, f"{good} of {len(found)} within {GOAL:.0%}"]
