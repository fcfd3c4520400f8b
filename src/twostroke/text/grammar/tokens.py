"""The vocabulary in the form that llguidance needs: all tokens for masks, and a few of them for compiling new grammars
on trial."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.text.grammar.library import LibraryVocabulary

TRIAL_TOKENS = 4096
"""The approximate number of tokens with which a new grammar is compiled on trial. The time of a compilation does not
depend on this number, and the time of one mask depends on it little."""


class GrammarVocabulary(Protocol):
    """The part of a tokenizer that grammars need."""

    special_ids: frozenset[int]
    tokens_are_bytes: bool

    def rows_bytes(self, num_rows: int) -> list[bytes]:
        """Returns the bytes of the tokens with the first `num_rows` ids; b"" for an id without a token."""


class TrialTokens(Struct, frozen=True):
    """The part of the vocabulary that the trial processes use: a part is enough to find out whether a grammar compiles.
    num_rows: the number of ids of the whole vocabulary. tokens: the bytes by token id; every single byte and every
    special token is one of them."""

    num_rows: int
    tokens: dict[int, bytes]
    special_ids: Sequence[int]


class Tokens:
    """A model's tokens for grammars, read once by the thread that needs them first, for any number of threads.

    num_rows: the number of rows of the model's logits; ids that the tokenizer lacks are never allowed.
    """

    def __init__(self, vocabulary: GrammarVocabulary, num_rows: int, end_token_ids: Sequence[int]) -> None:
        self._vocabulary = vocabulary
        self._num_rows = num_rows
        self._ends = tuple(end_token_ids)
        self._special_ids = sorted(i for i in vocabulary.special_ids if i < num_rows)
        self._reading, self._making = threading.Lock(), threading.Lock()
        self._rows: list[bytes] | None = None  # None until the vocabulary has been made
        self._trial: TrialTokens | None = None
        self._made: LibraryVocabulary | None = None

    def trial(self) -> TrialTokens:
        """Returns the part of the vocabulary for trials of new grammars. The first call reads all tokens of the
        tokenizer, which takes a while."""
        with self._reading:
            if self._trial is None:
                self._trial = self._sample(self._read())
            return self._trial

    def vocabulary(self) -> LibraryVocabulary:
        """Returns all tokens in llguidance's form. The first call takes about 0.3 s for 100,000 tokens."""
        with self._making:
            if self._made is None:
                with self._reading:
                    rows = self._read()
                self._made = LibraryVocabulary(rows, self._special_ids, self._ends)
                with self._reading:
                    self._trial, self._rows = self._trial or self._sample(rows), None
            return self._made

    def _read(self) -> list[bytes]:
        if self._rows is None:
            self._rows = self._vocabulary.rows_bytes(self._num_rows)
        return self._rows

    def _sample(self, rows: list[bytes]) -> TrialTokens:
        step = max(1, len(rows) // TRIAL_TOKENS)
        named = {*self._special_ids, *self._ends}
        chosen = {i: row for i, row in enumerate(rows) if len(row) == 1 or i % step == 0 or i in named}
        return TrialTokens(len(rows), chosen, self._special_ids)
