"""The real executor: runs a plan on a model and samples.

Knows: models, sampling, KV memory.
Must not know: the scheduler, text.
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.models.batch import Buffers
from twostroke.models.llama import LlamaModel
from twostroke.ops.operands import F32Array, new_kv_layer
from twostroke.runner.batch_builder import build_batch
from twostroke.sampling.sampler import sample
from twostroke.spec.formats import KVKind
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult


class ModelRunner:
    """Satisfies `engine.executor.Executor`. One step at a time."""

    def __init__(
        self,
        model: LlamaModel,
        kv_kind: KVKind,
        num_pages: int,
        max_step_tokens: int,
        max_sequences: int,
        clock: Callable[[], float],
    ) -> None:
        spec = model.spec
        self._model = model
        self._clock = clock
        self._kv = tuple(
            new_kv_layer(kv_kind, num_pages, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)
        )
        self._buffers = Buffers(spec, max_step_tokens, max_sequences)

    def execute(self, plan: Plan) -> StepResult:
        """One forward pass and one token for each sequence that samples.

        A fault in sampling one request fails that request alone. Raises BackendError where a kernel refuses.
        """
        started_s = self._clock()
        logits = self._model.forward(build_batch(plan), self._kv, self._buffers)
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
