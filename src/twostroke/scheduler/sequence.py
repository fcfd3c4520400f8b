"""One request inside the scheduler: `computed` tokens chasing `known` ones. There are no phases.

Knows: the request and its tokens so far.
Must not know: pages, other sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twostroke.types.prefix import PrefixMiss
from twostroke.types.request import Request


@dataclass(eq=False, slots=True)
class Sequence:
    """number: order of arrival. known: prompt and output. computed: positions whose K and V are in the cache.

    admission: order of the present admission, None while waiting. num_cached_tokens: prompt tokens found in the prefix
    tree at the first admission; prefix_miss: why no more were. scored: prompt positions that have their log
    probabilities.
    """

    request: Request
    number: int
    known: list[int] = field(default_factory=list)
    computed: int = 0
    scored: int = 0
    admission: int | None = None
    num_cached_tokens: int | None = None
    prefix_miss: PrefixMiss | None = None
    num_preemptions: int = 0
    first_scheduled_s: float | None = None

    @property
    def remaining(self) -> int:
        """Positions to compute before the next token can be chosen."""
        return len(self.known) - self.computed

    @property
    def num_output(self) -> int:
        """Output tokens so far."""
        return len(self.known) - len(self.request.prompt_token_ids)

    @property
    def to_score(self) -> range:
        """Positions that must be computed, cached or not, because their logits score the prompt token behind them."""
        asked = self.request.params.prompt_logprobs is not None
        return range(self.scored, len(self.request.prompt_token_ids) - 1) if asked else range(0)

    @property
    def rank(self) -> tuple[int, int]:
        """Order in the waiting queue: lower priority values first, then arrival. A preempted one keeps its place."""
        return (self.request.priority, self.number)
