"""A prompt's last chunk is small when another replica waits for its pages: the other pages travel while it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence

LAST_SHARE = 32
"""The last chunk has about one in LAST_SHARE tokens of the prompt."""
LEAST_PAGES = 2
"""The fewest pages of a last chunk: a step reads all weights, however few rows it has."""


@dataclass(frozen=True, slots=True)
class SmallLastChunk:
    """A chunk that would end the prompt, and is more than twice as long as a last chunk should be, ends before the last
    chunk."""

    page_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns the tokens up to the last chunk's first page, or all wanted tokens."""
        last = max(LEAST_PAGES * self.page_tokens, len(sequence.known) // LAST_SHARE)
        if wanted_tokens < sequence.remaining or wanted_tokens <= 2 * last:
            return wanted_tokens
        end = (len(sequence.known) - last) // self.page_tokens * self.page_tokens
        return end - sequence.computed
