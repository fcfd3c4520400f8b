"""Measures how long two ranks of this machine take to meet, and how fast numbers go from one to the other.

Two threads act as the ranks and use the exchange of processes: memory that both share.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.exchange import Exchange, memory_bytes
from twostroke.cost.calibration import ExchangeRates
from twostroke.distributed.ranks.processes import shared_memory

RANKS, ROUNDS, LIMIT_S = 2, 5, 30.0
FEW, MANY = (1, 64, 256), (256, 4096, 8)
"""Two exchanges (all-gathers) that are timed: the rows, the columns of one rank's part, and how often the exchange is
repeated. FEW exchanges nearly nothing, MANY 4 MB."""


def measure_exchange(level: str, clock: Callable[[], float]) -> ExchangeRates:
    """Measures the time of an exchange of rows between two ranks of this machine, and its bytes a second. The fastest
    of several rounds counts, so that other programs' share of the time does not. Raises BackendError."""
    with ExitStack() as closing:
        width = RANKS * MANY[1]
        descriptor = shared_memory(memory_bytes(level, RANKS, width))
        closing.callback(os.close, descriptor)
        ranks = []
        for rank in range(RANKS):
            exchange = Exchange.in_memory(level, descriptor, rank, RANKS, width, LIMIT_S)
            closing.callback(exchange.close)
            ops = CpuOps(level, 1)
            closing.callback(ops.close)
            ops.join(exchange)
            ranks.append(ops)
        meeting_s = min(_seconds(ranks, FEW, clock) for _ in range(ROUNDS))
        loaded_s = min(_seconds(ranks, MANY, clock) for _ in range(ROUNDS))
    moved = 4 * MANY[0] * MANY[1]
    return ExchangeRates(meeting_s, moved / max(loaded_s - meeting_s, meeting_s))


def _seconds(ranks: Sequence[CpuOps], shape: tuple[int, int, int], clock: Callable[[], float]) -> float:
    """Returns the seconds of one exchange (an all-gather) between the ranks."""
    rows, columns, count = shape
    taken: list[float] = []

    def play(ops: CpuOps) -> None:
        out, part = np.empty((rows, RANKS * columns), np.float32), np.zeros((rows, columns), np.float32)
        recorder = ops.recorder()
        for _ in range(count):
            recorder.gather(out, part)
        calls = recorder.calls()
        ops.run(calls)  # both ranks are awake from here on
        began = clock()
        ops.run(calls)
        taken.append((clock() - began) / count)

    others = [threading.Thread(target=play, args=(ops,), daemon=True) for ops in ranks[1:]]
    for thread in others:
        thread.start()
    try:
        play(ranks[0])
    finally:  # the memory of the ranks is freed afterwards; a waiting rank gives up after LIMIT_S
        for thread in others:
            thread.join()
    return max(taken)
