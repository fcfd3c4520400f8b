"""The cpu backend: the ops, run one by one as they are called, recorded and run together, or compiled from a program.

Knows: one native library, one thread pool.
Must not know: models, requests.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from twostroke.backends.cpu.compiled import CompiledProgram
from twostroke.backends.cpu.library import STATUSES, best_level, load_library, op_numbers, run_words
from twostroke.backends.cpu.recorded import CallRecorder, Calls
from twostroke.backends.cpu.weigh import NativeWeights
from twostroke.backends.cpu.words import Structs
from twostroke.ops.registry import registry
from twostroke.ops.step_memory import StepMemory
from twostroke.program.program import Program
from twostroke.spec.formats import KVKind, WeightKind
from twostroke.types.errors import BackendError

MAX_THREADS = 256


class Reading(IntEnum):
    """ts_reading: how few rows read the weights. What suits one maker's CPU is a third slower on another's.

    The bits are the same.
    """

    BY_MAKER = 0
    ONE_STRETCH = 1
    IN_TURN = 2


class CpuOps:
    """One call at a time: its pool and scratch memory belong to one caller.

    level: None takes the best of this CPU. `ops.rms_norm(out, x, weight, eps)` runs the op of ops/rms_norm.py, and so
    on. Wrong operands raise BackendError and write nothing. weigh: makes weights for sampling, in the caller's thread.
    """

    def __init__(self, level: str | None, num_threads: int) -> None:
        self.level = level or best_level()
        self.structs = Structs()
        self.weigh = NativeWeights(self.level)
        self._library = load_library(self.level)
        self.numbers = op_numbers(self.level)
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

    def kernel(self, op: str, weights: WeightKind, kv: KVKind, rows: int, head_dim: int) -> str | None:
        """The name of the kernel that an op takes for this many rows; None where it has one form a format."""
        found = self._library.ts_kernel(self._context, self.numbers[op], int(weights), int(kv), rows, head_dim)
        return None if found is None else str(found.decode())

    def recorder(self) -> CallRecorder:
        """Ops that are checked and kept, not run."""
        return CallRecorder(self.numbers, self.structs)

    def compile(self, program: Program, memory: StepMemory) -> CompiledProgram:
        """The program's calls as words, made once."""
        return CompiledProgram(self, program, memory)

    def run(self, calls: Calls) -> None:
        """Run calls on what their operands hold now. Raises BackendError where one refuses."""
        status, ran = run_words(self._library, self._context, calls.address, len(calls.words))
        self._check(calls.names[min(ran, len(calls.names) - 1)] if calls.names else "run", status)

    def __getattr__(self, name: str) -> Callable[..., None]:
        op = registry().get(name)
        if op is None:
            raise AttributeError(name)

        def run(*operands: Any) -> None:
            recorder = self.recorder()
            recorder.record(op, operands)
            self.run(recorder.calls())

        return run

    def _check(self, op: str, status: int) -> None:
        if status:
            raise BackendError(f"{op} was refused by the {self.level} kernels: {STATUSES.get(status, status)}.")
