"""The program of a shape that was never recorded, from programs of other shapes that were.

Where all operands lie in the same places, programs of two shapes differ in integers of their calls alone, those that
are sizes: tokens, sequences, logit rows. Which are is learned from samples: what is issued is decided by the ops' calls.

Knows: the C ABI's call struct as 64-bit words.
Must not know: models, what the sizes mean.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.backends.cpu.library import CallStruct
from twostroke.backends.cpu.program import Program

_WORD_BYTES = 8
_CALL_WORDS = ctypes.sizeof(CallStruct) // _WORD_BYTES
_FIRST_INTEGER = CallStruct.integers.offset // _WORD_BYTES
"""Words before it are the op, its number and its pointers: where they differ, programs are of different kinds."""
_LIMITS = np.iinfo(np.int64)

Words = npt.NDArray[np.int64]


class Template:
    """Each integer of each call is held to be what it was, or one of the sizes, until a sample contradicts.

    Samples must come from one program: same ops, same operands in the same places. One that does not ends all deriving.
    """

    def __init__(self) -> None:
        self._first: Program | None = None
        self._words: Words = np.empty((0, _CALL_WORDS), np.int64)
        self._first_sizes: Words = np.empty(0, np.int64)
        self._varied = np.empty(0, np.bool_)  # (sizes,): seen with two values
        self._holds = np.empty((0, 0, 0), np.bool_)  # (1 + sizes, calls, integers): the explanations that are left

    def learn(self, program: Program, sizes: Sequence[int]) -> None:
        """Strike out what does not explain this program, which was recorded for these sizes."""
        words, given = _words_of(program), np.array(sizes, np.int64)
        if self._first is None:
            self._first, self._words, self._first_sizes = program, words, given
            self._varied = np.zeros(len(given), np.bool_)
            self._holds = np.ones((1 + len(given), len(words), _CALL_WORDS - _FIRST_INTEGER), np.bool_)
        if program.names != self._first.names or _operands_differ(words, self._words):
            self._holds[:] = False  # something beside the sizes decides
            return
        self._varied |= given != self._first_sizes
        self._holds &= words[:, _FIRST_INTEGER:] == self._explained(given)

    def derive(self, sizes: Sequence[int]) -> Program | None:
        """The program for these sizes; None while explanations that are left disagree, or where none is left."""
        given = np.array(sizes, np.int64)
        # A size that was always the same has shown nothing of what follows it.
        if self._first is None or ((given != self._first_sizes) & ~self._varied).any():
            return None
        explained = self._explained(given)
        least = explained.min(axis=0, where=self._holds, initial=_LIMITS.max)
        if not np.array_equal(least, explained.max(axis=0, where=self._holds, initial=_LIMITS.min)):
            return None
        words = self._words.copy()
        words[:, _FIRST_INTEGER:] = least
        return Program(self._first.names, (CallStruct * len(words)).from_buffer(words.data))

    def _explained(self, sizes: Words) -> Words:
        """(1 + sizes, calls, integers): what each explanation says."""
        explained = np.empty(self._holds.shape, np.int64)
        explained[0] = self._words[:, _FIRST_INTEGER:]
        explained[1:] = sizes[:, None, None]
        return explained


def _words_of(program: Program) -> Words:
    """(calls, words), on the program's own memory."""
    memory: Any = program.calls
    return np.frombuffer(memory, np.int64).reshape(-1, _CALL_WORDS)


def _operands_differ(a: Words, b: Words) -> bool:
    return not np.array_equal(a[:, :_FIRST_INTEGER], b[:, :_FIRST_INTEGER])
