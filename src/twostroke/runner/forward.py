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

Places = tuple[int, ...]


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


class ProgramTemplate(Protocol):
    """Learns how programs over the same operands depend on their sizes."""

    def learn(self, program: Any, sizes: Sequence[int]) -> None:
        """From a program that was recorded for these sizes."""

    def derive(self, sizes: Sequence[int]) -> Any | None:
        """The program that recording would give for these sizes; None where that is not known for certain."""


class RecordingBackend(Protocol):
    """A backend that can keep calls and run them later in one go."""

    def recorder(self) -> RecordedOps:
        """Ops that keep."""

    def template(self) -> ProgramTemplate:
        """A template that has learned nothing yet."""

    def run(self, program: Any) -> None:
        """Run what was kept."""


class Recorded:
    """Keeps a program for each Batch object, whose arrays always lie in the same place, and runs it.

    The first few shapes are recorded; a template learns from them, and others are derived, in 0.03 ms instead of 0.4 (5
    layers) or 1.2 (16): prompts have all lengths, so that nearly each one is a new shape.
    """

    def __init__(self, model: LlamaModel, backend: RecordingBackend, kv: Sequence[KVLayer], buffers: Buffers) -> None:
        self._model, self._backend, self._kv, self._buffers = model, backend, kv, buffers
        self._programs: WeakKeyDictionary[Batch, tuple[Any, F32Array]] = WeakKeyDictionary()
        self._places: Places = ()
        self._templates: dict[bool, ProgramTemplate] = {}  # of batches at _places, by whether there are logit rows
        self._rows = np.empty(len(buffers.logits), np.int32)
        self._heads: dict[int, tuple[Any, F32Array]] = {}  # by number of rows

    def __call__(self, batch: Batch) -> F32Array:
        """See Forward."""
        found = self._programs.get(batch)
        if found is None or not _ends_at_last_row(batch):
            found = self._programs[batch] = self._derive(batch) or self._record(batch)
        program, logits = found
        self._backend.run(program)
        return logits

    def _derive(self, batch: Batch) -> tuple[Any, F32Array] | None:
        # Nothing checks the operands of a derived program, so that a batch that recording could refuse is recorded.
        tokens, _, chosen = sizes = _sizes(batch)
        fits = tokens <= len(self._buffers.hidden) and chosen <= self.max_rows
        if not (fits and all(sizes[:2]) and _ends_at_last_row(batch) and _places(batch) == self._places):
            return None
        template = self._templates.get(chosen > 0)
        program = None if template is None else template.derive(sizes)
        return None if program is None else (program, self._buffers.logits[:chosen])

    def _record(self, batch: Batch) -> tuple[Any, F32Array]:
        recorder = self._backend.recorder()
        logits = replace(self._model, ops=recorder).forward(batch, self._kv, self._buffers)
        program, sizes, places = recorder.program(), _sizes(batch), _places(batch)
        if places and places != self._places:
            self._places, self._templates = places, {}
        if places and all(sizes[:2]):
            self._templates.setdefault(sizes[2] > 0, self._backend.template()).learn(program, sizes)
        return program, logits

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


def _sizes(batch: Batch) -> tuple[int, int, int]:
    """Tokens, sequences, logit rows."""
    return len(batch.token_ids), len(batch.attention.context_tokens), len(batch.logit_rows)


def _ends_at_last_row(batch: Batch) -> bool:
    """The native attention checks that row_starts rises from 0 or more, and pages and contexts, in each run. It is not
    told how many rows there are: this is checked here, in each run, and recording says what is wrong."""
    attention = batch.attention
    return not len(attention.context_tokens) or int(attention.row_starts[-1]) == len(batch.token_ids)


def _places(batch: Batch) -> Places:
    """Where a batch's arrays lie and how, sizes left out; empty where their sizes or layouts do not fit each other."""
    tokens, sequences, chosen = _sizes(batch)
    attention = batch.attention
    pages = attention.page_table.shape[-1]
    arrays = (
        *((array, (tokens,)) for array in (batch.token_ids, batch.positions, batch.slots)),
        (attention.row_starts, (sequences + 1,)),
        (attention.context_tokens, (sequences,)),
        (attention.page_table, (sequences, pages)),
        (batch.logit_rows, (chosen,)),
    )
    if any(a.shape != shape or a.dtype != np.int32 or not a.flags.c_contiguous for a, shape in arrays):
        return ()
    return (pages, *(array.ctypes.data for array, _ in arrays))
