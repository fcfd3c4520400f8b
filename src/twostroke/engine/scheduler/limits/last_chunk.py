"""Makes a prompt's last chunk small when another replica waits for its pages: the other pages are sent while this chunk
is computed."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence

LAST_SHARE = 32
"""The last chunk has about one in LAST_SHARE tokens of the prompt."""
LEAST_PAGES = 2
"""The fewest pages of a prompt's last chunk. A smaller chunk would hardly be faster, since each step reads all weights.
"""


@dataclass(frozen=True, slots=True)
class SmallLastChunk:
    """Satisfies Limiter for replicas that only compute prompts. It divides a long chunk that would finish a prompt into
    two: the second is small, and the pages of the first are sent while it is computed."""

    page_tokens: int

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        """Returns all wanted tokens, unless they would finish the prompt and are more than twice as many as a small
        last chunk. Then returns the tokens up to the page with which the small last chunk begins; the next step
        computes that chunk."""
        last = max(LEAST_PAGES * self.page_tokens, len(sequence.known) // LAST_SHARE)
        if wanted_tokens < sequence.remaining or wanted_tokens <= 2 * last:
            return wanted_tokens
        end = (len(sequence.known) - last) // self.page_tokens * self.page_tokens
        return end - sequence.computed
