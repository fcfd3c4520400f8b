"""Run the grid of the ops with every operand between pages that may not be accessed.

    python -m tests.native.fences start|end[=FOLDER] ARGUMENTS OF PYTEST...

Each array is copied so that its first byte follows (start), or its last byte precedes (end), a page without any access
rights. One byte that is read or written outside kills the process with SIGSEGV. Without an address sanitizer, at every
instruction-set level, this finds what one would find in operands. A level with a library in FOLDER runs that library,
so a build that traps on undefined behaviour can be tested in the same run.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.some_cases import SomeCases
from tests.ops.native import Answers
from twostroke.backends.cpu import CpuOps, library
from twostroke.ops.registry import registry

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


def fence(array: np.ndarray, side: str) -> np.ndarray:
    """A copy with the same dtype, shape and strides, directly at a forbidden page."""
    if array.size == 0:
        return array
    span = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    inner = -(-span // PAGE) * PAGE
    room = np.frombuffer(mmap.mmap(-1, inner + 2 * PAGE), np.uint8)
    for at in (room.ctypes.data, room.ctypes.data + PAGE + inner):
        if LIBC.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect failed")
    first = PAGE if side == "start" else PAGE + inner - span
    room[first : first + span] = 0xA5
    flat = room[first : first + span].view(np.uint8)
    copy = np.ndarray(array.shape, array.dtype, flat.data, 0, array.strides)
    copy[...] = array
    return copy


def fenced_call(name: str, side: str) -> Any:
    """The method `name` of CpuOps on fenced copies. Its results are copied back."""
    op = registry()[name]

    def call(ops: CpuOps, *operands: Any) -> None:
        pairs: list[tuple[np.ndarray, np.ndarray]] = []
        copies: dict[int, Any] = {}

        def copied(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                if id(value) not in copies:
                    copies[id(value)] = fence(value, side)
                    pairs.append((value, copies[id(value)]))
                return copies[id(value)]
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = {f.name: copied(getattr(value, f.name)) for f in dataclasses.fields(value)}
                return value if "kind" in fields and "data" not in fields else type(value)(**fields)
            return value

        recorder = ops.recorder()
        fenced = tuple(copied(operand) for operand in operands)  # native structs live as long as these
        recorder.record(op, fenced)
        ops.run(recorder.calls())
        for original, copy in pairs:
            if original.flags.writeable:
                original[...] = copy

    return call


def take_libraries(folder: Path) -> None:
    """From now on, levels that have a library in this folder run it."""
    path_of = library.library_path
    library.load_library.cache_clear()

    def path(level: str) -> Path:
        own = folder / path_of(level).name
        return own if own.is_file() else path_of(level)

    library.library_path = path


def main() -> int:
    """Results are not compared: an access to a byte next to an operand ends the process."""
    (side, _, folder), arguments = sys.argv[1].partition("="), sys.argv[2:]
    if folder:
        take_libraries(Path(folder))
    Answers.checked = False
    for name in registry():
        setattr(CpuOps, name, fenced_call(name, side))
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *arguments], plugins=[SomeCases(side)]))


if __name__ == "__main__":
    sys.exit(main())
