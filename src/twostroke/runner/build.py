"""A runner with its KV memory, buffers and batches.

Knows: sizes, the rooms below.
Must not know: settings, where weights come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.batch import Buffers
from twostroke.models.llama import LlamaModel
from twostroke.ops.operands import new_kv_layer
from twostroke.runner.batch_builder import BatchBuilder
from twostroke.runner.forward import Recorded, RecordingBackend
from twostroke.runner.runner import ModelRunner
from twostroke.spec.formats import PAGE_TOKENS, KVKind


@dataclass(frozen=True, slots=True)
class RunnerSizes:
    """num_pages: of the KV pool. context_tokens: the longest sequence. The others are limits of one step."""

    num_pages: int
    context_tokens: int
    max_step_tokens: int
    max_sequences: int


def build_runner(
    model: LlamaModel, backend: RecordingBackend, kv_kind: KVKind, sizes: RunnerSizes, clock: Callable[[], float]
) -> ModelRunner:
    """The runner of the engine: steps are recorded on `backend`, which is also the model's ops."""
    spec = model.spec
    kv = tuple(new_kv_layer(kv_kind, sizes.num_pages, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers))
    buffers = Buffers(spec, sizes.max_step_tokens, sizes.max_sequences)
    max_pages = min(sizes.num_pages, -(-sizes.context_tokens // PAGE_TOKENS))
    batches = BatchBuilder(sizes.max_step_tokens, sizes.max_sequences, max_pages)
    return ModelRunner(Recorded(model, backend, kv, buffers), batches, clock)
