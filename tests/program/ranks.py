"""Several ranks in one process: each rank's program has a thread of its own, with an exchange that only tests have."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tests.runner.memories import write_rows
from twostroke.ops.operands import F32Array
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.forward import OpByOp

PAGES = np.array([3, 0, 2, 1], np.int32)


class Exchange:
    """The parts that the ranks exchange."""

    def __init__(self, ranks: int) -> None:
        self.barrier, self.parts = threading.Barrier(ranks), [np.empty(0, np.float32)] * ranks


class RankOps:
    """The ops of one rank: those of a backend, and gather."""

    def __init__(self, ops: Any, exchange: Exchange, rank: int) -> None:
        self._ops, self._exchange, self._rank = ops, exchange, rank
        self.gathers = 0

    def gather(
        self, out: F32Array, part: F32Array, reader: object = None, first: int = 0, positions: object = None
    ) -> None:
        self.gathers += 1
        self._exchange.parts[self._rank] = part
        self._exchange.barrier.wait(timeout=60)
        out[...] = np.concatenate(self._exchange.parts, axis=1)
        self._exchange.barrier.wait(timeout=60)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


def steps(forward: OpByOp, memory: StepMemory, token_ids: Sequence[int], chunks: Sequence[int]) -> F32Array:
    """Logits of all positions, computed in chunks."""
    rows, start = [], 0
    for count in chunks:
        rows.append(forward(write_rows(memory, list(token_ids[start : start + count]), start, PAGES)).copy())
        start += count
    return np.concatenate(rows)


def together(
    forwards: Sequence[OpByOp], memories: Sequence[StepMemory], token_ids: Sequence[int], chunks: Sequence[int]
) -> list[F32Array]:
    """The logits that each rank computes."""
    with ThreadPoolExecutor(len(forwards)) as pool:
        running = [
            pool.submit(steps, forward, memory, token_ids, chunks)
            for forward, memory in zip(forwards, memories, strict=True)
        ]
        return [each.result() for each in running]
