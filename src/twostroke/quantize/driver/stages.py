"""Runs a program stage by stage on a text. Memory holds the weights of one stage, and the hidden states between two
stages.

A stage is mostly half a layer (ops/passes/cut.py). The text is cut into sequences ("runs"); each is one step that needs
no earlier cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.passes.cut import Stage, smallest_stages
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice, Op
from twostroke.ops.program.values import Value, Weight
from twostroke.ops.ranks.receive import Receive
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.types.first_use.made_once import made_once
from twostroke.types.spec.formats import F32, PAGE_TOKENS, KVKind, WeightFormat
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import pack_into
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.blobs import MemoryTarget, plan_blobs, weights_from_blobs
from twostroke.weights.packing.rounded_packing import Packer

LOGIT_ROWS = 64
"""The most rows of logits that are computed at a time."""

Visit = Callable[[Op, Callable[[Value], F32Array]], None]
"""A function that sees a stage's calls before they run: visit(call, array_of). array_of returns the rows of a value,
valid until the next call."""


def exact_formats(weight: Weight) -> WeightFormat:
    """Returns float32 for every matrix: the choice of formats that rounds nothing."""
    return F32


@dataclass(frozen=True, eq=False)
class StagedModel:
    """A model that runs stage by stage. checkpoint: the tensors under the program's names. formats, kv: the formats of
    matrices, and of K and V. The caller makes and closes `ops` and `packer`."""

    model: Model
    checkpoint: Checkpoint
    ops: CpuOps
    packer: Packer
    formats: FormatChoice = exact_formats
    kv: KVKind = KVKind.F32

    @made_once
    def stages(self) -> tuple[Stage, ...]:
        """The smallest parts in which the model's program can be cut, in order: mostly half layers."""
        return smallest_stages(self.model.plain)

    def weights(self, index: int, checkpoint: Checkpoint | None = None) -> ModelWeights:
        """Returns the packed weights of one stage. checkpoint: is read in place of the model's own. Raises
        ModelError."""
        part = replace(self.model, program=self.stages[index].program)
        target = MemoryTarget(plan_blobs(part, self.formats))
        pack_into(target, checkpoint or self.checkpoint, part, self.formats, self.packer)
        return weights_from_blobs(part, self.formats, target.blobs.__getitem__)

    def run(
        self,
        index: int,
        weights: ModelWeights,
        runs: Sequence[I32Array],
        given: Sequence[F32Array],
        visit: Visit | None = None,
    ) -> list[F32Array]:
        """Runs a stage on each sequence of the text and returns its output for each. runs: the sequences, as token ids
        (T,). given: the output of the stage before, (T, width) for each. visit: is called before each op, to read its
        inputs.

        The output of the last stage is not computed: see `logits`.
        """
        stage = self.stages[index]
        memory, found = self._memory(stage, weights, max(map(len, runs))), []
        for at, ids in enumerate(runs):
            sizes = self._fill(memory, stage, ids, given[at] if given else None)
            self._body(stage, memory, sizes, visit)
            if index < len(self.stages) - 1:
                found.append(memory.value(stage.result, sizes).reshape(len(ids), -1).copy())
        return found

    def logits(self, weights: ModelWeights, ids: I32Array, given: F32Array | None) -> Iterator[F32Array]:
        """Runs the last stage on one sequence. given: the output of the stage before; None for a model with one stage.
        Yields logits (some rows, vocabulary), all rows in order; each array is valid until the next."""
        stage = self.stages[-1]
        memory = self._memory(stage, weights, len(ids))
        sizes = self._fill(memory, stage, ids, given)
        self._body(stage, memory, sizes, None)
        for first in range(0, len(ids), LOGIT_ROWS):
            rows = np.arange(first, min(first + LOGIT_ROWS, len(ids)), dtype=np.int32)
            memory.choose_logit_rows(rows)
            some = StepSizes(len(ids), 1, len(rows))
            for call in stage.program.head:
                getattr(self.ops, call.NAME)(*memory.operands(call, some))
            yield memory.value(stage.program.logits, some)

    def _memory(self, stage: Stage, weights: ModelWeights, tokens: int) -> StepMemory:
        sizes = MemorySizes(-(-tokens // PAGE_TOKENS), tokens, tokens, 1, 1, LOGIT_ROWS - 1)
        return StepMemory(stage.program, weights.matrices, weights.vectors, self.kv, sizes)

    def _fill(self, memory: StepMemory, stage: Stage, ids: I32Array, given: F32Array | None) -> StepSizes:
        count = len(ids)
        sizes = StepSizes(count, 1, 0)
        memory.token_ids[:count] = ids
        memory.positions[:count] = np.arange(count)
        memory.state_slots[0] = 0
        memory.copy_states(((-1, 0),) if memory.has_states else ())
        for inputs in memory.page_inputs:
            inputs.slots[:count] = np.arange(count)
            pages = inputs.batch.page_table.shape[1]
            inputs.batch.page_table[0] = np.arange(pages)
            inputs.batch.row_starts[:2] = [0, count]
            inputs.batch.context_tokens[0] = count
        if stage.received is not None and given is not None:
            memory.value(stage.received, sizes)[...] = given.reshape(count, *stage.received.shape)
        return sizes

    def _body(self, stage: Stage, memory: StepMemory, sizes: StepSizes, visit: Visit | None) -> None:
        for call in stage.program.body:
            if isinstance(call, Receive):
                continue
            if visit is not None:
                visit(call, lambda value: memory.value(value, sizes))
            getattr(self.ops, call.NAME)(*memory.operands(call, sizes))
