"""Native calls that are encoded once, as 64-bit words. They can be run again as long as their operands lie in the same
places.

A step is one native call. Python between the ops of a decode step would cost 3% of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.backends.cpu.words import Structs, call_words, check_rows
from twostroke.ops.program.op import Op, completed
from twostroke.ops.registry import op_named

Words = npt.NDArray[np.int64]


class Calls:
    """Calls of native ops, encoded as 64-bit words: for each call the op's number and its operands. Many words are
    addresses of arrays. `operands` keeps the memory at these addresses alive as long as the calls."""

    def __init__(self, names: tuple[str, ...], words: Sequence[int], operands: object) -> None:
        self.names, self._operands = names, operands
        self.words: Words = np.array(words, np.int64)
        self.address = self.words.ctypes.data


class CallRecorder:
    """Records calls: `recorder.rms_norm(out, x, weight, eps)` checks operands like the backend itself, and keeps the
    call."""

    def __init__(self, numbers: Mapping[str, int], structs: Structs) -> None:
        self._numbers, self._structs = numbers, structs
        self._names: list[str] = []
        self._words: list[int] = []
        self._operands: list[Any] = []

    def record(self, op: type[Op], operands: tuple[Any, ...]) -> None:
        """Keeps one call. Operands at the end that have a default may be left out."""
        operands = completed(op, operands)
        words = call_words(op, operands, self._structs)
        check_rows(op, operands)
        self._names.append(op.NAME)
        self._words += [self._numbers[op.NAME], *words]
        self._operands += operands

    def calls(self) -> Calls:
        """Returns the calls that were recorded so far."""
        return Calls(tuple(self._names), self._words, tuple(self._operands))

    def __getattr__(self, name: str) -> Callable[..., None]:
        op = op_named(name)
        if op is None:
            raise AttributeError(name)
        return lambda *operands: self.record(op, operands)
