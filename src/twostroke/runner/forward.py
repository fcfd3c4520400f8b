"""`Forward` runs one step of a program on its memory. `OpByOp` is a slow `Forward` that runs op after op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.program import Program
from twostroke.ops.step_memory import StepMemory, StepSizes


class Forward(Protocol):
    """A program bound to its memory, whose inputs are filled before each step."""

    def __call__(self, sizes: StepSizes) -> F32Array:
        """Runs a step and returns the logits (R, vocabulary) float32. They are valid until the next call of this
        object."""

    @property
    def max_rows(self) -> int:
        """How many logit rows there is memory for at once."""

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        """Returns the logits (R, vocabulary) of the given rows (R,) of the last step, also of rows for which that step
        computed none. R is at most max_rows. The logits are valid until the next call of this object."""


@dataclass(frozen=True, eq=False)
class OpByOp:
    """Runs every op in the program's order. Satisfies `Forward`. ops: has a method for each op, on arrays."""

    program: Program
    ops: Any
    memory: StepMemory

    def __call__(self, sizes: StepSizes) -> F32Array:
        for call in self.program.body:
            getattr(self.ops, call.NAME)(*self.memory.operands(call, sizes))
        return self._head(sizes)

    @property
    def max_rows(self) -> int:
        return self.memory.sizes.max_logit_rows

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        self.memory.choose_logit_rows(rows)
        return self._head(StepSizes(sizes.tokens, sizes.sequences, len(rows)))

    def _head(self, sizes: StepSizes) -> F32Array:
        if sizes.logit_rows:
            for call in self.program.head:
                getattr(self.ops, call.NAME)(*self.memory.operands(call, sizes))
        return self.memory.value(self.program.logits, sizes)
