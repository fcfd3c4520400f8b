"""Sums up the seconds of all steps, such as those of model and sampling, for completions that decode. A completion's
time is the difference between the sums at the end and at the beginning of its decode.

Steps in which all sequences decode are added many at a time, when the sums are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twostroke.cost.history.step_times import StepTime


class Span(NamedTuple):
    """The times of a step. busy_s: the seconds of model and sampling. away_s: seconds between the previous step and
    this one in which the code that reads the engine's events was busy. host_s: all other seconds since the previous
    step."""

    begin_s: float
    commit_s: float
    busy_s: float
    away_s: float
    host_s: float


class Sums(NamedTuple):
    """Sums of seconds over steps. base_s: model and sampling for decoding sequences. chunk_s: chunks of prompts.
    host_s: time in which neither model nor sampling ran. stall_s: time in which the code that reads the engine's events
    was busy."""

    base_s: float = 0.0
    chunk_s: float = 0.0
    host_s: float = 0.0
    stall_s: float = 0.0


def span(time: StepTime, last_s: float) -> Span:
    """Returns where the seconds of a step and of the gap before it went. last_s: when the step before it was committed.
    """
    begin_s, commit_s, model_s, sampling_s, _, away_s = time
    busy_s = model_s + sampling_s
    if busy_s > commit_s - begin_s:  # an executor may report more time than has passed
        busy_s = commit_s - begin_s
    if away_s:
        away_s = min(away_s, max(0.0, begin_s - last_s))
    return Span(begin_s, commit_s, busy_s, away_s, commit_s - last_s - busy_s - away_s)


class RunningSums:
    """Sums up the seconds of all steps so far, of four kinds: decode, chunks of prompts, host gap, and client stall. In
    the host gap neither model nor sampling ran; in a client stall, the reader of the engine's events was busy.
    commit_s: when the last step was committed."""

    __slots__ = ("commit_s", "now")

    def __init__(self) -> None:
        self.now = Sums()
        self.commit_s = 0.0

    def add(self, one: Span, chunk_s: float) -> None:
        """Add one step. chunk_s: the seconds of the step that belong to prefill."""
        base_s, by_chunks_s, host_s, stall_s = self.now
        self.now = Sums(base_s + one.busy_s - chunk_s, by_chunks_s + chunk_s, host_s + one.host_s, stall_s + one.away_s)
        self.commit_s = one.commit_s

    def add_decoding(self, times: Sequence[StepTime]) -> None:
        """Adds the seconds of steps without prefill, in order. It repeats the code of `span`, because calling it takes
        twice as long."""
        base_s, chunk_s, host_s, stall_s = self.now
        last_s = self.commit_s
        for begin_s, commit_s, model_s, sampling_s, _, away_s in times:
            busy_s = model_s + sampling_s
            if busy_s > commit_s - begin_s:
                busy_s = commit_s - begin_s
            if away_s:
                away_s = min(away_s, max(0.0, begin_s - last_s))
                stall_s += away_s
            base_s += busy_s
            host_s += commit_s - last_s - busy_s - away_s
            last_s = commit_s
        self.now = Sums(base_s, chunk_s, host_s, stall_s)
        self.commit_s = last_s


def begun_early(time: StepTime, recent: Sequence[StepTime], sums: RunningSums) -> StepTime:
    """The times of a step that a GPU began before the host planned it. The step begins when the GPU began, but not
    before the commit of the previous step, so that no second counts twice. recent: the latest steps, which are not in
    `sums` yet."""
    begin_s, commit_s, model_s, sampling_s, waiting, away_s = time
    last_s = recent[-1][1] if recent else sums.commit_s
    began_s = max(last_s, min(begin_s, commit_s - model_s - sampling_s))
    return began_s, commit_s, min(model_s, commit_s - began_s - sampling_s), sampling_s, waiting, away_s
