"""A prompt's last chunk is small where another replica waits for its pages: the others travel while it is computed."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence

LAST_SHARE = 32
"""The last chunk has about one in this many tokens of the prompt."""
LEAST_PAGES = 2
"""And at least these: a step reads all weights, however few rows it has."""


@dataclass(frozen=True, slots=True)
class SmallLastChunk:
    """A chunk that would end the prompt and is more than twice as long as a last chunk should be leaves that one."""

    page_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Up to the last chunk's first page, or everything that is wanted."""
        last = max(LEAST_PAGES * self.page_tokens, len(sequence.known) // LAST_SHARE)
        if wanted_tokens < sequence.remaining or wanted_tokens <= 2 * last:
            return wanted_tokens
        end = (len(sequence.known) - last) // self.page_tokens * self.page_tokens
        return end - sequence.computed
