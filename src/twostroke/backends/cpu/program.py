"""The ops of a step recorded once, run as often as their operands lie in the same places.

Python between the ops of a decode step cost 3% of it; a recorded step is one native call.

Knows: the C ABI's call struct.
Must not know: models, what the ops compute.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.backends.cpu.calls import KernelCalls, Structs
from twostroke.backends.cpu.library import CallStruct, argument_types
from twostroke.ops.protocol import OP_NAMES

_WORD_BYTES = 8
CALL_WORDS = ctypes.sizeof(CallStruct) // _WORD_BYTES
FIRST_INTEGER = CallStruct.integers.offset // _WORD_BYTES
"""Of a call's words; those before it are the op, its number and its pointers."""

Words = npt.NDArray[np.int64]


class Program:
    """Recorded calls. Holds addresses alone: whoever runs it keeps the operands alive."""

    def __init__(self, names: tuple[str, ...], calls: ctypes.Array[CallStruct]) -> None:
        self.names = names
        self._calls = calls

    @classmethod
    def of_words(cls, names: tuple[str, ...], words: Words) -> Program:
        """Of (calls, CALL_WORDS) contiguous words, which it keeps and does not copy."""
        return cls(names, (CallStruct * len(words)).from_buffer(words.data))

    def words(self) -> Words:
        """(calls, CALL_WORDS), on the program's own memory."""
        memory: Any = self._calls
        return np.frombuffer(memory, np.int64).reshape(-1, CALL_WORDS)

    def run(self, library: ctypes.CDLL, context: Any) -> tuple[int, int]:
        """-> (status, calls that were run before the one that refused)."""
        ran = ctypes.c_int64()
        status = library.ts_run(context, self._calls, len(self._calls), ctypes.byref(ran))
        return int(status), int(ran.value)


class Recorder(KernelCalls):
    """Satisfies `ops.protocol.Ops`: checks operands like the backend itself, and keeps the calls."""

    def __init__(self, structs: Structs) -> None:
        super().__init__(structs)
        self._names: list[str] = []
        self._calls: list[CallStruct] = []

    def program(self) -> Program:
        """What was recorded so far."""
        return Program(tuple(self._names), (CallStruct * len(self._calls))(*self._calls))

    def _issue(self, op: str, *arguments: Any) -> None:
        call = CallStruct(op=OP_NAMES.index(op))
        pointers, integers = 0, 0
        for argument, kind in zip(arguments, argument_types(op), strict=True):
            if kind is ctypes.c_float:
                call.number = argument
            elif kind in (ctypes.c_int64, ctypes.c_int32):
                call.integers[integers] = argument
                integers += 1
            else:
                call.pointers[pointers] = argument if isinstance(argument, int) else ctypes.addressof(argument)
                pointers += 1
        self._names.append(op)
        self._calls.append(call)
