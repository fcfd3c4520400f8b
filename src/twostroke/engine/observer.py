"""The interface by which the engine reports to its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twostroke.types.event import FinishedEvent
from twostroke.types.output import Timings
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Observer(Protocol):
    """The interface by which metrics listen to the engine. The methods are called on the thread that runs steps, so
    they must be quick. They must not raise, because an exception here ends the engine."""

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """A step was committed. duration_s: the seconds of scheduling, model, sampling and commit."""

    def on_first_token(self, ttft_s: float, /) -> None:
        """A completion has its first token. ttft_s: the seconds since its arrival, queueing included."""

    def on_next_tokens(self, gaps_s: Sequence[float], /) -> None:
        """Completions got tokens after their first ones, end tokens included. gaps_s: for each token, the seconds since
        the token before it in its completion."""

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """A completion has ended. Called once for each completion (n times for each request)."""


class NoObserver:
    """An Observer that ignores all calls."""

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """Do nothing."""

    def on_first_token(self, ttft_s: float, /) -> None:
        """Do nothing."""

    def on_next_tokens(self, gaps_s: Sequence[float], /) -> None:
        """Do nothing."""

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """Do nothing."""
