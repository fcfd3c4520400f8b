"""Measures the most that this machine can do: read memory, multiply float32, multiply int8. The rates are measured, not
looked up."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twostroke.backends.cpu.context import NativeContext
from twostroke.ops.operands import U8Array
from twostroke.types.errors import BackendError

READ_BYTES = 1 << 30
F32_KIND, INT8_KIND = 0, 2
WINDOWS, WINDOW_S = 4, 0.025
"""How often the rate of arithmetic is measured, and the least seconds of each measurement. The highest rate counts."""

SPREAD_S, SPREAD_IN_A_ROW = 0.3, 3
"""How the measurement waits until each thread has a core of its own: at most SPREAD_S seconds, until this was observed
SPREAD_IN_A_ROW times in a row."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The highest rates at which all threads of this machine together read memory and multiply, as measured. level: the
    instruction set whose int8 products were timed."""

    threads: int
    level: str
    read_bytes_per_s: float
    f32_flops_per_s: float
    int8_ops_per_s: float

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as plain values."""
        return asdict(self)

    def words(self) -> str:
        """Returns the measured rates of this machine in one sentence."""
        return (
            f"{self.threads} threads of this machine read {self.read_bytes_per_s / 1e9:.1f} GB/s and do "
            f"{self.f32_flops_per_s / 1e9:,.0f} GFLOP/s in float32 and {self.int8_ops_per_s / 1e9:,.0f} GOP/s in int8 "
            f"({self.level})"
        )


def median_limits(found: Sequence[Limits]) -> Limits:
    """Returns the median of each figure over several measurements of one machine."""
    return _each_figure(found, statistics.median)


def highest_limits(found: Sequence[Limits]) -> Limits:
    """Returns the largest of each figure over several measurements of one machine. A disturbance can only lower a
    figure."""
    return _each_figure(found, max)


def _each_figure(found: Sequence[Limits], choose: Callable[[list[float]], float]) -> Limits:
    return Limits(
        found[0].threads,
        found[0].level,
        choose([limits.read_bytes_per_s for limits in found]),
        choose([limits.f32_flops_per_s for limits in found]),
        choose([limits.int8_ops_per_s for limits in found]),
    )


class LimitMeter(NativeContext):
    """Measures this machine's highest rates of reading memory and of float32 and int8 products. It owns the threads
    and, where none is given, the memory to read. Close it after use."""

    def __init__(self, num_threads: int, clock: Callable[[], float], memory: U8Array | None = None) -> None:
        super().__init__(None, num_threads)
        self._threads, self._clock = num_threads, clock
        self._memory = np.ones(READ_BYTES, np.uint8) if memory is None else memory

    def measure(self, rounds: int = 3) -> Limits:
        """Returns the highest rates of `rounds` rounds. Each round measures reading memory, float32 products and int8
        products, one after the other. A disturbance can only make a rate look lower."""
        return highest_limits([self._once() for _ in range(rounds)])

    def _once(self) -> Limits:
        self._spread()
        return Limits(self._threads, self.level, self.read_rate(), self._rate(F32_KIND), self._rate(INT8_KIND))

    def _spread(self) -> None:
        """Keeps all threads busy until each has a core. Threads that begin on one core may stay there for a while."""
        seen, latest_s = 0, self._clock() + SPREAD_S
        while seen < SPREAD_IN_A_ROW and self._clock() < latest_s:
            seen = seen + 1 if self._library.ts_limit_spread(self._context) == self._threads else 0

    def read_rate(self) -> float:
        """Measures once how many bytes a second the threads read."""
        started_s = self._clock()
        self._library.ts_limit_read(self._context, self._memory.ctypes.data, self._memory.nbytes)
        return self._memory.nbytes / (self._clock() - started_s)

    def _rate(self, kind: int) -> float:
        rounds = 1000
        while self._window(kind, rounds)[1] < WINDOW_S:
            rounds *= 4
        return max(operations / taken_s for operations, taken_s in (self._window(kind, rounds) for _ in range(WINDOWS)))

    def _window(self, kind: int, rounds: int) -> tuple[int, float]:
        """Runs the arithmetic loop for `rounds` rounds. Returns the number of operations, and the seconds."""
        started_s = self._clock()
        operations = int(self._library.ts_limit_rate(self._context, kind, rounds))
        if operations <= 0:
            raise BackendError(f"The rate loop was refused: status {operations}.")
        return operations, self._clock() - started_s
