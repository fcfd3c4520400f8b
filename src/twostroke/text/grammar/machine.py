"""One request's way through a grammar.

Knows: llguidance's matcher.
Must not know: the sampler, how the grammar was compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from twostroke.types.grammar import GrammarFault

if TYPE_CHECKING:
    import llguidance

_T = TypeVar("_T")


class GrammarMachine:
    """A TokenMask. Owns its matcher; nothing that moves is shared with other machines."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self._fault: str | None = None
        self.num_tokens = 0

    def feed(self, token_id: int) -> None:
        """Take in the next output token; one that the grammar forbids is a fault that `bits` raises."""
        self.num_tokens += 1
        self._guarded(lambda: self._matcher.consume_token(token_id), False)

    def rewind(self, num_tokens: int) -> None:
        """Go back to when it had `num_tokens`; a fault stays."""
        back = self.num_tokens - num_tokens
        self.num_tokens = num_tokens
        if back:
            self._guarded(lambda: self._matcher.rollback(back), False)

    def bits(self) -> bytes:
        """See TokenMask. Where the grammar is at its end, the end tokens alone."""
        bits = self._guarded(self._matcher.compute_bitmask, b"")
        if self._fault is not None:
            raise GrammarFault(self._fault)
        return bits

    def _guarded(self, move: Callable[[], _T], otherwise: _T) -> _T:
        """The library keeps its errors to itself, and where its Rust code panics raises a BaseException."""
        if self._fault is not None:
            return otherwise
        try:
            made = move()
            if self._matcher.is_error():
                self._fault = f"the grammar cannot be followed ({self._matcher.stop_reason()})"
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            self._fault = f"the grammar cannot be followed ({type(error).__name__})"
            return otherwise
        return made
