"""A device that computes nothing: each step takes a fixed time, in which the interpreter is free for other threads."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult


class SimulatedDevice:
    """Satisfies engine.executor.Executor. step_s: of each step, from its beginning. token_ids: the text that every
    stream gets, again and again; a stream begins at a place of its own."""

    def __init__(self, step_s: float, token_ids: Sequence[int]) -> None:
        self._step_s = step_s
        self._tokens = [(SampledToken(token_id),) for token_id in token_ids]

    def execute(self, plan: Plan) -> StepResult:
        """The next token of each sequence that samples."""
        begin_s = time.perf_counter()
        tokens, count = self._tokens, len(self._tokens)
        sampled = {
            sequence.request.request_id: tokens[(sequence.request.seed + len(sequence.known_token_ids)) % count]
            for sequence in plan.sequences
            if sequence.samples
        }
        if (left_s := self._step_s - (time.perf_counter() - begin_s)) > 0:
            time.sleep(left_s)
        return StepResult(sampled, model_s=self._step_s)
