"""One request inside the scheduler: its known tokens, and how many of them are computed."""

from __future__ import annotations

from msgspec import Struct, field

from twostroke.types.images import keys_of
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives
from twostroke.types.plan import Role
from twostroke.types.recorded.prefix import PrefixMiss
from twostroke.types.request import Request

NO_SCORES = range(0)
Rank = tuple[int, int, float, int]
"""The key by which waiting sequences are sorted; the sequence with the least rank comes first. Without objectives it is
(priority, 0, 0.0, order of arrival). With objectives it is (0 for interactive or 1 for batch work, a class, 0.0, order
of arrival). PromiseOrder numbers the classes: resumed, promised, held, too long."""


class Sequence(Struct, eq=False):
    """A request with its progress. number: order of arrival. known: prompt and output. computed: the number of
    positions whose K and V are in the cache.

    role: DECODE from the sequence's first output token on, until it is preempted. While it decodes, all of its tokens
    but the last are computed. In a model with states, a rejected guess resets the state to the one before the step:
    then the tokens of that step are not computed.

    admission: order of the present admission, None while waiting. num_cached_tokens: prompt tokens found in the prefix
    tree at the first admission; prefix_miss: why no more were found. rank: order among the waiting, given by the
    policy. objectives: the promised times. prefill_tokens, prefill_s: tokens and predicted seconds of its prompt alone,
    without the part that was cached when it came; set when a policy predicts. encode_s: predicted seconds of its images
    that are not encoded yet. last_step: the last step that computed it. scored: the number of prompt positions that
    have their log probabilities, or are in `pooled`, the sum of the rows of a pooled prompt so far. points: positions
    at which a chunk ends, because a snapshot of its state is taken there. paused: all known tokens were computed, and
    the next token comes from outside (`Steering`). alone_before: positions before it are computed alone, because a step
    with them failed. under_way: the number of plans that hold the sequence and are not committed; their positions count
    as computed. memory: see SampledToken.
    """

    request: Request
    number: int
    known: list[int] = field(default_factory=list)
    computed: int = 0
    role: Role = Role.PREFILL
    scored: int = 0
    pooled: bytes = b""
    admission: int | None = None
    num_cached_tokens: int | None = None
    prefix_miss: PrefixMiss | None = None
    num_preemptions: int = 0
    first_scheduled_s: float | None = None
    rank: Rank = (0, 0, 0.0, 0)
    objectives: LatencyObjectives = NO_OBJECTIVES
    prefill_tokens: int = 0
    prefill_s: float = 0.0
    encode_s: float = 0.0
    last_step: int = 0
    points: tuple[int, ...] = ()
    paused: bool = False
    alone_before: int = 0
    under_way: int = 0
    memory: tuple[float, ...] = ()

    @property
    def remaining(self) -> int:
        """The number of positions to compute before the next token can be chosen."""
        return len(self.known) - self.computed

    @property
    def keys(self) -> list[int]:
        """The keys by which the sequence's pages are found: the known tokens, with the keys of images in place of
        placeholders."""
        images = self.request.images
        return keys_of(self.known, images) if images else self.known

    @property
    def num_output(self) -> int:
        """The number of output tokens so far."""
        return len(self.known) - len(self.request.prompt_token_ids)

    @property
    def prompt_under_way(self) -> bool:
        """True when a chunk of the prompt is in a plan that is not committed. Other sequences cannot share its pages
        yet."""
        return self.under_way > 0 and self.role is Role.PREFILL

    @property
    def to_score(self) -> range:
        """The positions whose logits or rows the request wants: they score the prompt token after them, or are pooled.
        These positions are computed even if their pages are cached."""
        wanted = self.request.wanted_rows
        return range(max(self.scored, wanted.start), wanted.stop)

    @property
    def may_skip(self) -> bool:
        """True when positions with cached pages need not be computed. The last known position is computed in any case.
        """
        wanted = self.to_score
        return not wanted or wanted.start == len(self.known) - 1

    def scores_in(self, end: int) -> range:
        """Returns the positions whose logits or rows the request wants (`to_score`) and that are computed if the
        sequence is computed up to `end`."""
        asked = self.to_score
        return range(max(self.computed, asked.start), min(end, asked.stop))

    @property
    def interactive(self) -> bool:
        """True when a reader waits for each token: at priority 0 and below. Above 0 is batch work."""
        return self.request.priority <= 0
