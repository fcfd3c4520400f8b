"""The cpu backend. Ops are run one by one as they are called, recorded and run together, or compiled from a program."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from twostroke.backends.cpu.compiled import CompiledProgram
from twostroke.backends.cpu.context import NativeContext
from twostroke.backends.cpu.exchange import Exchange
from twostroke.backends.cpu.library import RANK_LOST, STATUSES, op_numbers, run_words
from twostroke.backends.cpu.recorded import CallRecorder, Calls
from twostroke.backends.cpu.weigh import NativeWeights
from twostroke.backends.cpu.words import Structs
from twostroke.ops.program.program import Program
from twostroke.ops.registry import op_named
from twostroke.ops.step_memory import StepMemory
from twostroke.system.cpu_list import ANY
from twostroke.types.errors import BackendError, MeetingLost
from twostroke.types.spec.formats import KVKind, WeightKind


class Reading(IntEnum):
    """The C enum ts_reading: the way in which products of few rows read the weights. The way that suits one maker's CPU
    is a third slower on another's.

    The bits of the results are the same.
    """

    BY_MAKER = 0
    ONE_STRETCH = 1
    IN_TURN = 2


class CpuOps(NativeContext):
    """Runs ops, one call at a time: its pool and scratch memory belong to one caller. `ops.rms_norm(out, x, weight,
    eps)` runs that op, and so on.

    Wrong operands raise BackendError and write nothing. weigh: computes the sampling weights of a row of logits
    (unnormalized probabilities), in the caller's thread.
    """

    def __init__(self, level: str | None, num_threads: int, cpus: str = ANY) -> None:
        super().__init__(level, num_threads, cpus)
        self.structs = Structs()
        self.weigh = NativeWeights(self.level)
        self.numbers = op_numbers(self.level)

    def read_weights(self, reading: Reading) -> None:
        """Sets how products of few rows go through the weights in memory from now on (see Reading). Raises BackendError
        for a way that the kernels do not have."""
        self._check("read_weights", self._library.ts_context_read(self._context, int(reading)))

    def join(self, exchange: Exchange) -> None:
        """Sets the exchange through which calls send partial results to other ranks from now on."""
        self._check("join", self._library.ts_context_join(self._context, exchange.handle))

    @property
    def scratch_bytes(self) -> int:
        """The bytes of scratch memory taken so far."""
        return int(self._library.ts_context_scratch_bytes(self._context))

    def kernel(self, op: str, weights: WeightKind, kv: KVKind, rows: int, head_dim: int) -> str | None:
        """Returns the name of the kernel that an op uses for `rows` rows. Returns None where the op has only one kernel
        for this format."""
        found = self._library.ts_kernel(self._context, self.numbers[op], int(weights), int(kv), rows, head_dim)
        return None if found is None else str(found.decode())

    def recorder(self) -> CallRecorder:
        """Returns an object that checks calls and records them, without running them. `run` then runs all recorded
        calls together."""
        return CallRecorder(self.numbers, self.structs)

    def compile(self, program: Program, memory: StepMemory) -> CompiledProgram:
        """Returns the program as native calls, which are encoded once and run in each step."""
        return CompiledProgram(self, program, memory)

    def run(self, calls: Calls) -> None:
        """Runs calls on the present content of their operands. Raises BackendError where a call refuses."""
        self._place_caller()
        status, ran = run_words(self._library, self._context, calls.address, len(calls.words))
        self._check(calls.names[min(ran, len(calls.names) - 1)] if calls.names else "run", status)

    def __getattr__(self, name: str) -> Callable[..., None]:
        op = op_named(name)
        if op is None:
            raise AttributeError(name)

        def run(*operands: Any) -> None:
            recorder = self.recorder()
            recorder.record(op, operands)
            self.run(recorder.calls())

        return run

    def _check(self, op: str, status: int) -> None:
        if status == RANK_LOST:
            raise MeetingLost(f"{op} has failed: {STATUSES[status]}.")
        if status:
            raise BackendError(f"{op} was refused by the {self.level} kernels: {STATUSES.get(status, status)}.")
