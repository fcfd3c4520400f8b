"""How many tokens of an answer are thoughts: a function of the answer's tokens alone.

The pieces of an answer come joined in whatever way the reader's pace made them; the tokens are counted one by one, so
that equal answers have equal counts. The marks of a thought count as part of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

from twostroke.text.talk.reader import TurnReader


class ReasoningCount:
    """turn: a fresh machine that tells thoughts from the rest; None counts nothing. token_text: a token's bytes."""

    def __init__(self, turn: TurnReader | None, token_text: Callable[[int], bytes]) -> None:
        self._turn = turn
        self._token_text = token_text
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.tokens = 0

    def add(self, token_ids: Iterable[int]) -> None:
        """Take the next tokens. One that opens or closes a thought, or stands within it, is counted."""
        turn = self._turn
        if turn is None:
            return
        for token_id in token_ids:
            text = self._utf8.decode(self._token_text(token_id))
            if turn.passes(text):
                continue
            before = turn.thinking
            turn.feed(text)
            self.tokens += before or turn.thinking
