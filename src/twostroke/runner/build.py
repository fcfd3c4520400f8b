"""A runner with its KV memory, buffers and batches.

Knows: sizes, the rooms below.
Must not know: settings, where weights come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.models.batch import Buffers
from twostroke.models.llama import LlamaModel
from twostroke.ops.operands import KVLayer, new_kv_layer
from twostroke.runner.batch_builder import BatchBuilder
from twostroke.runner.forward import Recorded, RecordingBackend
from twostroke.runner.runner import ModelRunner, no_delay
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class RunnerSizes:
    """num_pages: of the KV pool. context_tokens: the longest sequence. The others are limits of one step."""

    num_pages: int
    context_tokens: int
    max_step_tokens: int
    max_sequences: int


def page_table_bytes(context_tokens: int, max_sequences: int) -> int:
    """The most that the table of pages of a step takes: one int32 for each page of each sequence."""
    return -(-context_tokens // PAGE_TOKENS) * max_sequences * 4


def new_kv(spec: ModelSpec, kind: KVKind, num_pages: int) -> tuple[KVLayer, ...]:
    """The KV pool: one layer for each of the model's."""
    return tuple(new_kv_layer(kind, num_pages, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers))


def build_runner(
    model: LlamaModel,
    backend: RecordingBackend,
    kv: Sequence[KVLayer],
    sizes: RunnerSizes,
    clock: Callable[[], float],
    delay: Callable[[], float] = no_delay,
) -> ModelRunner:
    """The runner of the engine: steps are recorded on `backend`, which is also the model's ops."""
    spec = model.spec
    buffers = Buffers(spec, sizes.max_step_tokens, sizes.max_sequences)
    max_pages = min(sizes.num_pages, -(-sizes.context_tokens // PAGE_TOKENS))
    batches = BatchBuilder(sizes.max_step_tokens, sizes.max_sequences, max_pages)
    return ModelRunner(Recorded(model, backend, kv, buffers), batches, clock, delay)
