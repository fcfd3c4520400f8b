"""Sequences whose tokens come from outside: the beams of a beam search.

Such a sequence is paused after each step that samples. Its controller then gives it the next token (`extend`), or makes
it a copy of another sequence (`branch`). A paused sequence keeps its pages, but they can be taken from it like those of
any other sequence; it is computed again then, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Positions

from msgspec.structs import replace

from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.plan import Role
from twostroke.types.request import Request

GiveUp = Callable[[Sequence, str], None]
"""Preempts the sequence between two steps. Called with (sequence, id of the request because of which it is preempted).
"""


class Steering:
    """Gives paused sequences their next token, or replaces them by copies of others, as the controller of a beam search
    asks. give_up: preempts a sequence, which the next plan lists among the preempted ones."""

    def __init__(self, cache: CacheManager, queues: Queues, give_up: GiveUp) -> None:
        self._cache, self._queues, self._give_up = cache, queues, give_up
        self._copied: list[str] = []  # ids of requests whose last page, or state, the next plan copies

    def extend(self, request_id: str, token_id: int) -> None:
        """Give a paused sequence its next token, and let it go on. Raises KeyError for an unknown sequence."""
        sequence = self._paused(request_id)
        sequence.known.append(token_id)
        if sequence.request.mask is not None:
            sequence.request.mask.feed(token_id)
        self._queues.resume(sequence)

    def branch(self, request: Request, source_id: str) -> None:
        """Make the sequence of `request` a paused copy of the paused sequence `source_id`. If `request` has a sequence
        already, its former tokens and pages are dropped.

        The copy shares the full pages. The last page and the state are copied; when there is no room for that, the
        whole copy is computed again when it is resumed. Raises KeyError when the source is unknown.
        """
        cache, queues, request_id = self._cache, self._queues, request.request_id
        source, sequence = self._paused(source_id), queues.find(request_id)
        _follow(request, () if sequence is None else sequence.known, source.known)
        if sequence is None:
            sequence = replace(source, request=request, admission=None, paused=False, num_preemptions=0)
            sequence.first_scheduled_s, sequence.prefix_miss = None, None
            queues.add_paused(sequence)
        cache.close(request_id)
        sequence.known, sequence.computed = list(source.known), source.computed
        if source.admission is not None and cache.fork(source_id, request_id):
            sequence.role = Role.DECODE
            queues.admit_paused(sequence)
            self._copied.append(request_id)
        else:
            self._give_up(sequence, source_id)

    def take_copied(self) -> list[str]:
        """Returns, once, the ids of the requests that became copies by `branch` since the last plan. The plan that is
        made now copies their last page and state."""
        copied, self._copied = self._copied, []
        return copied

    def give_up_copies(self, copied: list[str]) -> None:
        """Preempts the sequences in `copied`, which `branch` made. Called when the plan that should copy their last
        page and state has failed: perhaps not all of these copies were made."""
        for request_id in copied:
            sequence = self._queues.find(request_id)
            if sequence is not None and sequence.admission is not None:
                self._give_up(sequence, request_id)

    def _paused(self, request_id: str) -> Sequence:
        sequence = self._queues.find(request_id)
        if sequence is None or not sequence.paused:
            raise KeyError(f"no sequence {request_id!r} is paused")
        return sequence


def _follow(request: Request, before: Positions[int], known: Positions[int]) -> None:
    """Sets the grammar mask of a request to the end of the output in `known`. before: the request's tokens until now,
    which the mask has read."""
    mask, start = request.mask, len(request.prompt_token_ids)
    if mask is None:
        return
    old, new = before[start:], known[start:]
    differ = (place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    same = next(differ, min(len(old), len(new)))
    mask.rewind(same)
    for token_id in new[same:]:
        mask.feed(token_id)
