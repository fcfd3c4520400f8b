"""The life of a native context: its threads and memory are given back exactly once."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tests.patience import PATIENCE_S
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.context import NativeContext
from twostroke.ops.rows.pointwise import PointStep, program_of
from twostroke.system import here
from twostroke.system.cpu_list import write_cpus

THREADS = Path("/proc/self/task")
CLOSE: CodeType = NativeContext.close.__code__


class Library:
    """Counts what is freed."""

    def __init__(self) -> None:
        self.freed: list[int] = []

    def ts_context_destroy(self, context: int) -> None:
        self.freed.append(context)


def closed_by_two(place: int) -> tuple[int, bool]:
    """How often a context is freed where one thread that closes it stops before its instruction number `place` while
    another one closes it too; and whether there is such an instruction."""
    context, library = NativeContext(None, 1), Library()
    destroy, found = context._library.ts_context_destroy, context._context
    context._library = library
    stopped, go_on, passed = threading.Event(), threading.Event(), []

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code is not CLOSE:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed.append(frame.f_lasti)
            if len(passed) == place + 1:
                stopped.set()
                go_on.wait(PATIENCE_S)
        return trace

    def traced() -> None:
        sys.settrace(trace)
        context.close()
        sys.settrace(None)
        stopped.set()

    first, second = threading.Thread(target=traced), threading.Thread(target=context.close)
    first.start()
    stopped.wait(PATIENCE_S)
    second.start()
    second.join(0.02)
    go_on.set()
    first.join()
    second.join()
    destroy(found)
    return len(library.freed), len(passed) > place


def test_two_threads_that_close_at_once_free_it_once() -> None:
    place, more = 0, True
    while more:
        freed, more = closed_by_two(place)
        assert freed == 1, place
        place += 1
    assert place > 10


def test_a_pool_keeps_its_threads_on_the_cpus_that_it_was_given() -> None:
    """This concerns its own threads and a calling thread, and neither the program's main thread nor later threads."""
    before, known = here.allowed_cpus(), set(THREADS.iterdir())
    cpu, *others = sorted(before or {0})
    with closing(CpuOps(None, 3, str(cpu))) as ops:
        assert set(THREADS.iterdir()) <= known, "no more threads run than there are CPUs"

        def step() -> frozenset[int] | None:
            ops.pointwise(np.zeros((1, 64), np.float32), program_of(PointStep.TIMES_A), None, None, None, 2.0)
            return here.allowed_cpus()

        assert step() == before
        with ThreadPoolExecutor(1) as caller:
            assert caller.submit(step).result() == {cpu}
        known, kept = set(THREADS.iterdir()), write_cpus([cpu, *others[:1]])
        with closing(CpuOps(None, 3, kept)):
            workers = set(THREADS.iterdir()) - known
            assert [allowed(folder) for folder in workers] == [kept] * len(others[:1])
    assert here.allowed_cpus() == before


def allowed(folder: Path) -> str:
    return next(line for line in (folder / "status").read_text().splitlines() if "Cpus_allowed_list" in line).split()[1]
