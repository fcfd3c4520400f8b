"""What metrics may hear of the engine.

Knows: plans, results, events, times.
Must not know: what is counted, or in which format.
"""

from __future__ import annotations

from typing import Protocol

from twostroke.types.event import FinishedEvent
from twostroke.types.output import Timings
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Observer(Protocol):
    """Called on the thread that steps, so it must be quick. An exception here ends the engine, so raise none."""

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """After each step. duration_s: scheduling, model, sampling and commit."""

    def on_first_token(self, ttft_s: float, /) -> None:
        """A completion's first token; ttft_s counts from its arrival, queueing included."""

    def on_next_token(self, itl_s: float, /) -> None:
        """Each later token, the end token as well; itl_s: the gap since the one before."""

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """Once for each completion (n for each request)."""


class Nobody:
    """Hears nothing."""

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """Nothing."""

    def on_first_token(self, ttft_s: float, /) -> None:
        """Nothing."""

    def on_next_token(self, itl_s: float, /) -> None:
        """Nothing."""

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """Nothing."""
