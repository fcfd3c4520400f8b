"""Compares the ranks or stages of a model with one process that has as many threads as all of them together.

Both are loaded at once and take turns in each round, so that other load of the machine slows both alike. The figure is
the median, over the rounds, of the ratio within a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twostroke.lab.bench.phases import Note, PhaseBench, PhaseCase, PhasesAsked
from twostroke.llm import LLM

GOAL = 0.9
"""Two ranks of one thread each must reach at least this share of the rate of one process with two threads."""


@dataclass(frozen=True, slots=True)
class DividedFigures:
    """The figures of one case. whole, divided: tokens a second of the one process and of all divided processes
    together, medians over the rounds.

    ratio: the median of divided / whole in the same round; least_ratio, most_ratio: the least and the largest of the
    rounds. exchange_share: the share of the leader's time, during the case, that it spent in the exchange.
    waited_share: the share of the exchange's time in which the leader waited for other processes.
    """

    phase: str
    streams: int
    tokens: int
    whole: float
    divided: float
    ratio: float
    least_ratio: float
    most_ratio: float
    exchange_share: float
    waited_share: float

    @property
    def good(self) -> bool:
        """Whether the divided processes reach at least the share GOAL of the one process's rate."""
        return self.ratio >= GOAL

    def as_json(self) -> dict[str, Any]:
        """Returns the figures as plain values."""
        return {**asdict(self), "good": self.good}


@dataclass(eq=False)
class _Turns:
    """The measurements of one case so far; each list has one value for each round."""

    whole: list[float]
    divided: list[float]
    exchange: list[float]
    waited: list[float]


class DividedBench:
    """Compares two engines. whole: an engine in one process. divided: the same model and formats in several processes.
    clock: returns seconds."""

    def __init__(self, whole: LLM, divided: LLM, clock: Callable[[], float]) -> None:
        self._whole, self._divided, self._clock = whole, divided, clock
        self._benches = (PhaseBench(whole, clock), PhaseBench(divided, clock))

    def run(self, asked: PhasesAsked, note: Note) -> list[DividedFigures]:
        """Measures every case of prefill and decode, once in each round, with the divided model and with one process.
        The first round is a warm-up and does not count. Raises ConfigError where a case is longer than the context."""
        found = {case: _Turns([], [], [], []) for case in self._benches[0].cases(asked)}
        self._whole.settle()
        self._divided.settle()
        for number in range(asked.rounds + 1):
            for case, turns in found.items():
                note(f"round {number} of {asked.rounds}: {case[0]}, {case[1]} x {case[2]} tokens")
                kept = turns if number else _Turns([], [], [], [])
                self._turn(case, kept, asked.new_tokens, divided_first=number % 2 == 1)
        return [_figures(case, turns) for case, turns in found.items()]

    def _turn(self, case: PhaseCase, turns: _Turns, new_tokens: int, divided_first: bool) -> None:
        for divided in (divided_first, not divided_first):
            if not divided:
                turns.whole.append(self._benches[0].speed(case, new_tokens))
                continue
            before, began_s = self._divided.exchanged, self._clock()
            turns.divided.append(self._benches[1].speed(case, new_tokens))
            passed_s, after = self._clock() - began_s, self._divided.exchanged
            spent = after - before
            turns.exchange.append(spent.seconds / passed_s)
            turns.waited.append(spent.waited_s / max(spent.seconds, 1e-9))


def _figures(case: PhaseCase, turns: _Turns) -> DividedFigures:
    ratios = [divided / whole for whole, divided in zip(turns.whole, turns.divided, strict=True)]
    rates = (statistics.median(turns.whole), statistics.median(turns.divided))
    spread = (statistics.median(ratios), min(ratios), max(ratios))
    return DividedFigures(*case, *rates, *spread, statistics.median(turns.exchange), statistics.median(turns.waited))


def table(found: Sequence[DividedFigures]) -> list[str]:
    """Returns the lines of a table with a row for each case: the speeds of one process and of the divided processes,
    and their ratio."""
    lines = [
        f"{'phase':<8} {'streams':>7} {'tokens':>7} {'one':>10} {'divided':>10} {'ratio':>6}   least .. most;"
        " of the leader's time"
    ]
    for each in found:
        sign = "" if each.good else f"   less than {GOAL:.0%}"
        lines.append(
            f"{each.phase:<8} {each.streams:>7} {each.tokens:>7,} {each.whole:>10,.1f} {each.divided:>10,.1f} "
            f"{each.ratio:>6.2f}   {each.least_ratio:.2f} .. {each.most_ratio:.2f}; {each.exchange_share:.0%} "
            f"exchange, {each.waited_share:.0%} of it waits{sign}"
        )
    return lines
