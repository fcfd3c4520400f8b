"""The engine's calls to its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twostroke.types.event import FinishedEvent
from twostroke.types.output import Timings
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Observer(Protocol):
    """Called on the thread that steps, so it must be quick. An exception here ends the engine, so raise none."""

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """A step was committed. duration_s: scheduling, model, sampling and commit."""

    def on_first_token(self, ttft_s: float, /) -> None:
        """A completion's first token; ttft_s counts from its arrival, queueing included."""

    def on_next_tokens(self, gaps_s: Sequence[float], /) -> None:
        """Later tokens of a step, end tokens as well: the gap of each since the one before of its completion."""

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """Once for each completion (n for each request)."""


class NoObserver:
    """Does nothing at each call."""

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """Do nothing."""

    def on_first_token(self, ttft_s: float, /) -> None:
        """Do nothing."""

    def on_next_tokens(self, gaps_s: Sequence[float], /) -> None:
        """Do nothing."""

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """Do nothing."""
