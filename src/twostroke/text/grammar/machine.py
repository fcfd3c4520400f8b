"""One request's way through a grammar.

Knows: the library's matcher.
Must not know: the sampler, how the grammar was compiled.
"""

from __future__ import annotations

from twostroke.text.grammar.library import Matcher
from twostroke.types.grammar import GrammarFault


class GrammarMachine:
    """A TokenMask. Owns its matcher; nothing that moves is shared with other machines."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._fault: str | None = None
        self.num_tokens = 0

    def feed(self, token_id: int) -> None:
        """Take in the next output token; one that the grammar forbids is a fault that `bits` raises."""
        self.num_tokens += 1
        if self._fault is None and not self._matcher.consume(token_id):
            self._fail()

    def rewind(self, num_tokens: int) -> None:
        """Go back to when it had `num_tokens`; a fault stays."""
        back = self.num_tokens - num_tokens
        self.num_tokens = num_tokens
        if back and self._fault is None and not self._matcher.rollback(back):
            self._fail()

    def bits(self) -> bytes:
        """See TokenMask. Where the grammar is at its end, the end tokens alone."""
        bits = None if self._fault is not None else self._matcher.mask()
        if bits is None:
            self._fail()
            raise GrammarFault(self._fault)
        return bits

    def _fail(self) -> None:
        if self._fault is None:
            self._fault = f"the grammar cannot be followed ({self._matcher.fault[:200]})"
