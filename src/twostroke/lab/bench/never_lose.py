"""Measures what guessing costs where it cannot win. One engine answers the same requests with guesses and without.

In each round the same requests are answered both with guesses and without. Which of the two comes first changes from
round to round. The two times of a round make one ratio, which a slow moment of the machine changes less than either
time. The result is the median of the ratios, with the interval that contains the true median in 95 of 100 measurements.
This holds for any distribution of the noise: each of n independent ratios lies above the true median with probability
1/2, as in the toss of a coin. The verdict is made from the interval, so that a difference within the noise does not
count. Every answer with guesses is compared with the answer without.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from twostroke.llm import LLM
from twostroke.types.errors import TwostrokeError
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

BOUND = 0.98
"""The share of the speed without guesses that must remain with guesses."""
CONFIDENCE = 0.95
RANDOM_TEXT = SamplingParams(temperature=2.0, ignore_eos=True)
OWN_TEXT = SamplingParams(temperature=0.0, ignore_eos=True)
Note = Callable[[str], None]
MakeLLM = Callable[..., LLM]
PROMISED = {"ttft": "20s", "itl": "1s"}
"""Objectives that are always met, so that only the cost of their bookkeeping is measured."""
QUESTION = "how does prefill differ from decode"


class BoundVerdict(StrEnum):
    """Whether measured speed ratios reach BOUND. HOLDS: their interval lies above the bound. LOSES: it lies below the
    bound. OPEN: the bound lies within it."""

    HOLDS = "holds"
    LOSES = "loses"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Situation:
    """A workload on which generation with and without guesses is compared. lengths: the lengths of its prompts, which
    are random tokens; empty for a single request with a question. tokens: the tokens of each answer. promised: whether
    the engine has TTFT and ITL objectives."""

    name: str
    lengths: tuple[int, ...]
    tokens: int
    params: SamplingParams = RANDOM_TEXT
    promised: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast the engine was with guesses as without: the median over the rounds. low, high: the ends of
    the 95% confidence interval of the median."""

    median: float
    low: float
    high: float

    @property
    def verdict(self) -> BoundVerdict:
        """Whether the measured ratio reaches BOUND: the whole interval from `low` to `high` does (HOLDS), none of it
        does (LOSES), or only a part (OPEN)."""
        if self.low >= BOUND:
            return BoundVerdict.HOLDS
        return BoundVerdict.LOSES if self.high < BOUND else BoundVerdict.OPEN


@dataclass(frozen=True, slots=True)
class SituationFigures:
    """The figures of one workload. wall: how many times as fast it was with guesses as without, by the clock.
    processor: the same for the processor times of all threads of this process, which other programs disturb less.
    off_ms: clock milliseconds of a token without guesses."""

    name: str
    wall: Ratio
    processor: Ratio
    off_ms: float
    guessed: int
    accepted: int


@dataclass(frozen=True, slots=True)
class NeverLose:
    """The result of the benchmark: a row for each workload. bound: the least speed with guesses, as a share of the
    speed without (BOUND)."""

    model: str
    way: str
    rounds: int
    settings: dict[str, Any]
    rows: tuple[SituationFigures, ...]
    bound: float = BOUND

    def as_json(self) -> dict[str, Any]:
        """Returns all fields as plain values. Each workload's row also gets two verdicts, by the clock and by processor
        time: whether guesses keep at least the share BOUND of the speed."""
        rows = [
            {**asdict(row), "verdict": row.wall.verdict, "processor_verdict": row.processor.verdict}
            for row in self.rows
        ]
        return {**asdict(self), "rows": rows}


def situations(tokens: int, streams: int) -> tuple[Situation, ...]:
    """Returns the workloads to measure: random text and the model's own text, one stream and many, with prompts in
    between, with objectives. tokens: the tokens that one stream writes; with many streams, each writes a quarter of
    them."""
    few = max(8, tokens // 4)
    mixed = tuple(300 if index % 2 else 16 for index in range(6))
    return (
        Situation("random text, one stream", (64,), tokens),
        Situation("the model's own text, one stream", (), tokens, OWN_TEXT),
        Situation(f"random text, {streams} streams", (16,) * streams, few),
        Situation("random text, prompts read beside", mixed, few),
        Situation(f"random text, {streams} streams, objectives on", (16,) * streams, few, promised=True),
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the smallest and the largest value of an interval that contains the true median with at least the
    probability CONFIDENCE. Both are elements of `values`; with too few values they are the least and the largest."""
    ordered, count = sorted(values), len(values)
    outside, cut = 0.0, 0
    for index in range(count // 2):
        outside += 2 * math.comb(count, index) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        cut = index
    return ordered[cut], ordered[count - 1 - cut]


@dataclass(slots=True)
class _Taken:
    """The seconds of each round, keyed by the way (with guesses or "off"). wall: seconds of the clock. processor:
    seconds of the processor's clock."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)

    def add(self, way: str, wall_s: float, processor_s: float) -> None:
        self.wall.setdefault(way, []).append(wall_s)
        self.processor.setdefault(way, []).append(processor_s)


class NeverLoseBench:
    """Measures workloads with guesses and without, in turn, and compares the times. way: the name of the way to guess,
    such as `ngram`. clock, processor_clock: functions that return seconds."""

    def __init__(self, way: str, rounds: int, clock: Callable[[], float], processor_clock: Callable[[], float]) -> None:
        self._way, self._rounds = way, rounds
        self._clock, self._processor_clock = clock, processor_clock
        self._random = random.Random(0)

    def run(self, llm: LLM, situation: Situation) -> SituationFigures:
        """Measures one workload. The first round is not counted. Raises TwostrokeError where an answer with guesses
        differs from the answer without."""
        totals = llm._built.guesser.totals
        guessed, accepted = totals.guessed, totals.accepted
        taken = _Taken()
        for index in range(self._rounds + 1):
            asked = self._requests(llm, situation, index)
            ways = ("off", self._way) if index % 2 else (self._way, "off")
            answers = [self._answers(llm, asked, way, taken if index else _Taken()) for way in ways]
            if answers[0] != answers[1]:
                raise TwostrokeError(
                    f"{situation.name}: {self._way} changed an answer.", fix="Report it: this must never happen."
                )
        wall, processor = (self._ratio(each) for each in (taken.wall, taken.processor))
        off_ms = 1e3 * statistics.median(taken.wall["off"]) / situation.tokens
        return SituationFigures(
            situation.name, wall, processor, off_ms, totals.guessed - guessed, totals.accepted - accepted
        )

    def _requests(self, llm: LLM, situation: Situation, index: int) -> list[Prompt]:
        """Returns the prompts of a round. They are new in each round, because answers of earlier rounds would make
        guessing easier."""
        params = replace(situation.params, max_tokens=situation.tokens)
        if not situation.lengths:
            return [Prompt(tuple(llm.chat_tokens(f"{QUESTION} {index}")), params)]
        params = replace(params, seed=index + 1)
        draw = self._random.randrange
        return [Prompt(tuple(draw(llm.vocab_size) for _ in range(length)), params) for length in situation.lengths]

    def _answers(self, llm: LLM, asked: Sequence[Prompt], way: str, taken: _Taken) -> list[tuple[int, ...]]:
        begin_s, processor_begin_s = self._clock(), self._processor_clock()
        outputs = llm.engine.generate([replace(prompt, speculate=way) for prompt in asked])
        taken.add(way, self._clock() - begin_s, self._processor_clock() - processor_begin_s)
        return [tuple(output.completions[0].token_ids) for output in outputs]

    def _ratio(self, taken: dict[str, list[float]]) -> Ratio:
        ratios = [off / max(own, 1e-9) for off, own in zip(taken["off"], taken[self._way], strict=True)]
        return Ratio(statistics.median(ratios), *interval(ratios))


def never_lose(make: MakeLLM, bench: NeverLoseBench, asked: Sequence[Situation], note: Note) -> list[SituationFigures]:
    """Measures, for each workload of `asked`, how fast the engine is with guesses compared with none. make: loads an
    LLM and takes objectives as further options. Workloads with objectives share one LLM, and those without share
    another."""
    rows: list[SituationFigures] = []
    for promised in (False, True):
        some = [each for each in asked if each.promised is promised]
        if not some:
            continue
        with make(**(PROMISED if promised else {})) as llm:
            for each in some:
                note(f"measuring: {each.name}")
                rows.append(bench.run(llm, each))
    return rows
