"""The program of a shape that was never recorded, from programs of other shapes that were.

Where all operands lie in the same places, programs of two shapes differ in integers of their calls alone, those that
are sizes: tokens, sequences, logit rows. Which are is learned from samples.

Knows: programs as 64-bit words.
Must not know: models, what the sizes mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twostroke.backends.cpu.program import CALL_WORDS, FIRST_INTEGER, Program, Words

_LIMITS = np.iinfo(np.int64)


class Template:
    """Each integer of each call is held to be what it was, or one of the sizes, until a sample contradicts.

    Samples must come from one program: same ops, same operands in the same places. One that does not ends all deriving.
    """

    def __init__(self) -> None:
        self._first: Program | None = None
        self._words: Words = np.empty((0, CALL_WORDS), np.int64)
        self._first_sizes: Words = np.empty(0, np.int64)
        self._varied = np.empty(0, np.bool_)  # (sizes,): seen with two values
        self._holds = np.empty((0, 0, 0), np.bool_)  # (1 + sizes, calls, integers): the explanations that are left

    def learn(self, program: Program, sizes: Sequence[int]) -> None:
        """Strike out what does not explain this program, which was recorded for these sizes."""
        words, given = program.words(), np.array(sizes, np.int64)
        if self._first is None:
            self._first, self._words, self._first_sizes = program, words, given
            self._varied = np.zeros(len(given), np.bool_)
            self._holds = np.ones((1 + len(given), len(words), CALL_WORDS - FIRST_INTEGER), np.bool_)
        if program.names != self._first.names or _operands_differ(words, self._words):
            self._holds[:] = False  # something beside the sizes decides
            return
        self._varied |= given != self._first_sizes
        self._holds &= words[:, FIRST_INTEGER:] == self._explained(given)

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
        words[:, FIRST_INTEGER:] = least
        return Program.of_words(self._first.names, words)

    def _explained(self, sizes: Words) -> Words:
        """(1 + sizes, calls, integers): what each explanation says."""
        explained = np.empty(self._holds.shape, np.int64)
        explained[0] = self._words[:, FIRST_INTEGER:]
        explained[1:] = sizes[:, None, None]
        return explained


def _operands_differ(a: Words, b: Words) -> bool:
    return not np.array_equal(a[:, :FIRST_INTEGER], b[:, :FIRST_INTEGER])
