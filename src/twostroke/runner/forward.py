"""Two ways to run a model program over a batch: op by op, or recorded once for each shape and run natively.

Knows: models, batches, buffers, a backend that can record.
Must not know: plans, sampling, which backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from twostroke.models.batch import Batch, Buffers
from twostroke.models.llama import LlamaModel
from twostroke.ops.operands import F32Array, I32Array, KVLayer
from twostroke.ops.protocol import Ops


class Forward(Protocol):
    """A model bound to its KV memory and buffers."""

    def __call__(self, batch: Batch) -> F32Array:
        """Logits (R, vocabulary) float32, valid until the next call of this object."""

    @property
    def max_rows(self) -> int:
        """Logit rows that there is memory for at once."""

    def logits(self, rows: I32Array) -> F32Array:
        """Of other rows (R,) of the last batch, R at most max_rows; valid until the next call of this object."""


@dataclass(frozen=True, eq=False)
class Directly:
    """Every op as the program comes to it; for backends that only compute."""

    model: LlamaModel
    kv: Sequence[KVLayer]
    buffers: Buffers

    def __call__(self, batch: Batch) -> F32Array:
        """See Forward."""
        return self.model.forward(batch, self.kv, self.buffers)

    @property
    def max_rows(self) -> int:
        """See Forward."""
        return len(self.buffers.logits)

    def logits(self, rows: I32Array) -> F32Array:
        """See Forward."""
        return self.model.logits(rows, self.buffers)


class RecordedOps(Ops, Protocol):
    """What a recorder is: the ops, and what was kept of them."""

    def program(self) -> Any:
        """The calls so far, for RecordingBackend.run."""


class RecordingBackend(Protocol):
    """A backend that can keep calls and run them later in one go."""

    def recorder(self) -> RecordedOps:
        """Ops that keep."""

    def run(self, program: Any) -> None:
        """Run what was kept."""


class Recorded:
    """Records the program once for each Batch object, whose arrays always lie in the same place, and runs it."""

    def __init__(self, model: LlamaModel, backend: RecordingBackend, kv: Sequence[KVLayer], buffers: Buffers) -> None:
        self._model, self._backend, self._kv, self._buffers = model, backend, kv, buffers
        self._programs: WeakKeyDictionary[Batch, tuple[Any, F32Array]] = WeakKeyDictionary()
        self._rows = np.empty(len(buffers.logits), np.int32)
        self._heads: dict[int, tuple[Any, F32Array]] = {}  # by number of rows

    def __call__(self, batch: Batch) -> F32Array:
        """See Forward."""
        found = self._programs.get(batch)
        if found is None:
            recorder = self._backend.recorder()
            logits = replace(self._model, ops=recorder).forward(batch, self._kv, self._buffers)
            found = self._programs[batch] = (recorder.program(), logits)
        program, logits = found
        self._backend.run(program)
        return logits

    @property
    def max_rows(self) -> int:
        """See Forward."""
        return len(self._rows)

    def logits(self, rows: I32Array) -> F32Array:
        """See Forward."""
        count = len(rows)
        self._rows[:count] = rows
        found = self._heads.get(count)
        if found is None:
            recorder = self._backend.recorder()
            logits = replace(self._model, ops=recorder).logits(self._rows[:count], self._buffers)
            found = self._heads[count] = (recorder.program(), logits)
        self._backend.run(found[0])
        return found[1]
