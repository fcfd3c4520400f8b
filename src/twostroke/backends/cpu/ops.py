"""The cpu backend: the eleven ops, run one by one as they are called, or recorded and run together.

Knows: one native library, one thread pool.
Must not know: models, requests.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from twostroke.backends.cpu.calls import KernelCalls, Structs
from twostroke.backends.cpu.library import STATUSES, best_level, load_library
from twostroke.backends.cpu.program import Program, Recorder
from twostroke.backends.cpu.template import Template
from twostroke.types.errors import BackendError

MAX_THREADS = 256


class Reading(IntEnum):
    """ts_reading: how few rows read the weights. What suits one maker's CPU is a third slower on another's.

    The bits are the same.
    """

    BY_MAKER = 0
    ONE_STRETCH = 1
    IN_TURN = 2


class CpuOps(KernelCalls):
    """One call at a time: its pool and scratch memory belong to one caller.

    level: None takes the best of this CPU. Wrong operands raise BackendError and write nothing.
    """

    def __init__(self, level: str | None, num_threads: int) -> None:
        super().__init__(Structs())
        self.level = level or best_level()
        self._library = load_library(self.level)
        self._context = self._library.ts_context_create(num_threads) if 1 <= num_threads <= MAX_THREADS else None
        if not self._context:
            raise BackendError(
                f"A pool of {num_threads} threads could not be made.",
                fix=f"Ask for 1 to {MAX_THREADS} threads (--threads).",
            )

    def close(self) -> None:
        """End the threads; the object cannot be used afterwards. Closing twice is harmless."""
        context, self._context = self._context, None
        if context:
            self._library.ts_context_destroy(context)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.close()

    def read_weights(self, reading: Reading) -> None:
        """How few rows read the weights from now on. Raises BackendError where the kernels know no such way."""
        self._check("read_weights", self._library.ts_context_read(self._context, int(reading)))

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory taken so far."""
        return int(self._library.ts_context_scratch_bytes(self._context))

    def recorder(self) -> Recorder:
        """Ops that are checked and kept, not run."""
        return Recorder(self._structs)

    def template(self) -> Template:
        """Learns from recorded programs, so that those of other shapes need no recording."""
        return Template()

    def run(self, program: Program) -> None:
        """Run what was recorded, on the operands' contents of now. Raises BackendError where an op refuses."""
        status, ran = program.run(self._library, self._context)
        self._check(program.names[min(ran, len(program.names) - 1)] if program.names else "run", status)

    def _issue(self, op: str, *arguments: Any) -> None:
        self._check(op, getattr(self._library, f"ts_{op}")(self._context, *arguments))

    def _check(self, op: str, status: int) -> None:
        if status:
            raise BackendError(f"{op} was refused by the {self.level} kernels: {STATUSES.get(status, status)}.")
