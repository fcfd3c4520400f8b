"""The position of one request in a grammar, or in several grammars that a text must fit together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from twostroke.text.grammar.library import Matcher
from twostroke.types.grammar import GrammarFault

SMOOTHED_OVER = 4
"""The number of masks over which the time of a mask is smoothed: one mask that takes long by chance changes the
smoothed time only a little."""


class GrammarMachine:
    """A TokenMask for one completion. It owns its matchers; no changing data is shared with other machines.

    mask_s: the processor time of a mask, see TokenMask. It begins with the time of the mask that was made when the
    grammar was compiled.
    """

    def __init__(self, matchers: Sequence[Matcher], mask_s: float = 0.0) -> None:
        self._matchers = tuple(matchers)
        self.mask_s = mask_s
        self._fault: str | None = None
        self.num_tokens = 0

    def feed(self, token_id: int) -> None:
        """Take in the next output token. If the grammar forbids the token, the next call of `bits` raises the error."""
        self.num_tokens += 1
        self._each(lambda matcher: matcher.consume(token_id))

    def rewind(self, num_tokens: int) -> None:
        """Goes back to the state after the first `num_tokens` tokens. A machine whose grammar has forbidden a token
        stays failed."""
        back = self.num_tokens - num_tokens
        self.num_tokens = num_tokens
        if back:
            self._each(lambda matcher: matcher.rollback(back))

    def bits(self) -> bytes:
        """Returns the mask of the next token, one bit for each token. At the end of the grammar, only the end tokens
        are set. Raises GrammarFault for a machine that could not follow the grammar."""
        began_s, masks = time.thread_time(), list[bytes]()

        def made(matcher: Matcher) -> bool:
            mask = matcher.mask()
            masks.append(mask or b"")
            return mask is not None

        self._each(made)
        if self._fault is None and len(masks) > 1:
            masks = [self._common(masks)]
        self.mask_s += (time.thread_time() - began_s - self.mask_s) / SMOOTHED_OVER
        if self._fault is not None:
            raise GrammarFault(self._fault)
        return masks[0]

    def _common(self, masks: Sequence[bytes]) -> bytes:
        common = np.frombuffer(masks[0], np.uint8)
        for mask in masks[1:]:
            common = common & np.frombuffer(mask, np.uint8)
        if not common.any():
            self._fault = "the grammar cannot be followed (no token fits all of its parts)"
        made: bytes = common.tobytes()
        return made

    def _each(self, move: Callable[[Matcher], bool]) -> None:
        for matcher in self._matchers:
            if self._fault is None and not move(matcher):
                self._fault = f"the grammar cannot be followed ({matcher.fault[:200]})"
