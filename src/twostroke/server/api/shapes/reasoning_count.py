"""Counts how many tokens of an answer are reasoning: a function of the answer's tokens alone.

The pieces of an answer come joined in different ways, which depend on the reader's pace. The tokens are counted one by
one, so that equal answers have equal counts. The tokens that open and close the reasoning count as part of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from twostroke.text.talk.reader import TurnReader

MOST_PASSED = 256


class ReasoningCount:
    """Counts the reasoning tokens of one answer. turn: a fresh parser that separates reasoning from the rest; None
    counts nothing. token_text: returns a token's bytes."""

    def __init__(self, turn: TurnReader | None, token_text: Callable[[int], bytes]) -> None:
        self._turn = turn
        self._token_text = token_text
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._passed: list[int] = []
        self._counted = 0

    @property
    def tokens(self) -> int:
        """The number of reasoning tokens so far."""
        self._read_passed()
        return self._counted

    def passed(self, token_ids: Sequence[int]) -> None:
        """Takes tokens of text for the user, which are no reasoning. The parser reads them later, many at once, so that
        it knows where the next reasoning begins."""
        if self._turn is None:
            return
        self._passed += token_ids
        if len(self._passed) >= MOST_PASSED:
            self._read_passed()

    def add(self, token_ids: Sequence[int]) -> None:
        """Takes the next tokens. A token is counted when it opens or closes the reasoning, or is inside it."""
        if self._turn is None:
            return
        self._read_passed()
        for token_id in token_ids:
            self._read(self._turn, self._text_of(token_id))

    def _read_passed(self) -> None:
        if not self._passed or self._turn is None:
            return
        texts = [self._text_of(token_id) for token_id in self._passed]
        self._passed.clear()
        if not self._turn.passes("".join(texts)):  # the token boundaries are not those of the characters
            for text in texts:
                self._read(self._turn, text)

    def _text_of(self, token_id: int) -> str:
        return self._utf8.decode(self._token_text(token_id))

    def _read(self, turn: TurnReader, text: str) -> None:
        before = turn.thinking
        turn.feed(text)
        self._counted += before or turn.thinking
