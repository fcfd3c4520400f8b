"""The interface of the object that runs plans."""

from __future__ import annotations

from typing import Protocol

from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Executor(Protocol):
    """Computes plans (batches): runs the model and samples tokens. Satisfied by runner.ModelRunner, by simulators and
    by the tests' fakes."""

    def execute(self, plan: Plan) -> StepResult:
        """Compute a plan. Each planned sequence that samples gets one token, more when guesses were right, or the
        reason why it failed."""
