"""The real executor: runs a plan on a model and samples.

Knows: a bound model, sampling.
Must not know: the scheduler, text.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.ops.operands import F32Array
from twostroke.runner.batch_builder import BatchBuilder
from twostroke.runner.forward import Forward
from twostroke.sampling.sampler import sample
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult


class ModelRunner:
    """Satisfies `engine.executor.Executor`. One step at a time."""

    def __init__(self, forward: Forward, batches: BatchBuilder, clock: Callable[[], float]) -> None:
        self._forward, self._batches, self._clock = forward, batches, clock

    def execute(self, plan: Plan) -> StepResult:
        """One forward pass and one token for each sequence that samples.

        A fault in sampling one request fails that request alone. Raises BackendError where a kernel refuses.
        """
        started_s = self._clock()
        logits = self._forward(self._batches.build(plan))
        model_end_s = self._clock()
        sampled, failed = self._sample(plan, logits)
        return StepResult(sampled, failed, model_end_s - started_s, self._clock() - model_end_s)

    def _sample(self, plan: Plan, logits: F32Array) -> tuple[dict[str, SampledToken], dict[str, str]]:
        sampled: dict[str, SampledToken] = {}
        failed: dict[str, str] = {}
        sampling = [sequence for sequence in plan.sequences if sequence.samples]
        for row, sequence in zip(logits, sampling, strict=True):
            request_id = sequence.request.request_id
            try:
                sampled[request_id] = sample(row, sequence)
            except (ValueError, IndexError) as error:
                failed[request_id] = f"sampling failed: {error}"
        return sampled, failed
