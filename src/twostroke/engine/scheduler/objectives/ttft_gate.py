"""Which requests are promised their TTFT objective, which wait until the promise can be given, and which are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from twostroke.engine.scheduler.objectives.promise_order import HELD, TOO_LONG, PromiseOrder
from twostroke.engine.scheduler.objectives.work_ahead import WorkAhead
from twostroke.engine.scheduler.queues import Queues
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.errors import Overloaded

HOPELESS_FACTOR = 4.0
"""A request is refused at once when its predicted TTFT is more than this many times the objective, and the prediction
rests on measured steps."""
LOOKED_AT = 4
"""The number of held requests for which is predicted, before each step, whether their TTFT can be promised now."""


class TtftGate:
    """Promises a sequence its TTFT objective when it is predicted to be in time. Sequences that come later cannot delay
    it then. Every other sequence is held: it waits after all promised ones, and gets its promise as soon as it is
    predicted to be in time. A held request is refused when it could not be in time any more even if it were alone. So a
    refusal rests on what was measured up to the last moment. Only a request whose prediction is hopeless
    (HOPELESS_FACTOR) is refused at once.

    A prompt that even alone takes longer than its objective is not refused for that, or it would never be served. It
    waits after all promised requests. It is refused only when its prediction is hopeless compared with the time that it
    takes alone.

    No request is refused when nothing else waits or runs. Requests without objective, and batch work, are never held.
    refuses: False holds and refuses nothing.
    """

    def __init__(self, ahead: WorkAhead, order: PromiseOrder, refuses: bool = True) -> None:
        self._ahead = ahead
        self._order = order
        self._refuses = refuses
        self._held: list[Sequence] = []  # in the order of arrival

    def check(self, sequence: Sequence, queues: Queues, now: float) -> None:
        """Decide on a new sequence: its TTFT is promised, or the sequence is held, which means that it waits without a
        promise. Raises Overloaded when its prediction is hopeless. The sequence's rank and prefill_tokens must be set.
        """
        wanted_s = sequence.objectives.ttft_s
        if wanted_s is None or not sequence.interactive or not self._refuses or not self._busy(sequence, queues):
            return
        too_long = sequence.rank[1] == TOO_LONG
        if too_long:
            wanted_s = max(wanted_s, self._ahead.alone_s(sequence, queues))
        predicted_s = self._predicted_s(sequence, queues, now)
        if predicted_s <= wanted_s:
            return
        behind_all_s = self._predicted_s(sequence, queues, now, self._held)
        if self._ahead.sure and behind_all_s > HOPELESS_FACTOR * wanted_s:
            raise self._refusal(sequence, queues, behind_all_s)
        if too_long:
            return
        sequence.rank = self._order.held(sequence)
        self._held.append(sequence)

    def follow(self, sibling: Sequence, first: Sequence | None) -> None:
        """Treat another completion of the same request in the same way: hold `sibling` when the request's first
        sequence is held."""
        if first is not None and first in self._held:
            sibling.rank = self._order.held(sibling)
            self._held.append(sibling)

    def holds(self, sequence: Sequence) -> bool:
        """Returns True when the sequence is held: it waits, and its TTFT is not promised yet."""
        return sequence in self._held

    def promise(self, queues: Queues, now: float) -> None:
        """Promise their TTFT to held sequences that are predicted to be in time now: they get their usual rank. When no
        sequence runs and all waiting ones are held, the first gets the promise in any case, so that there is work. Call
        it before a step."""
        self._held = [s for s in self._held if queues.find(s.request.request_id) is s]
        for sequence in self._held[:LOOKED_AT]:
            late = self._predicted_s(sequence, queues, now) > self._wanted_s(sequence)
            if sequence not in self._held or (late and self._others_go_on(queues)):
                continue
            for each in self._take_group(sequence):
                queues.rank_again(each, self._order.rank(each))

    def overdue(self, queues: Queues, now: float) -> list[tuple[Sequence, Overloaded]]:
        """Returns the held sequences that can no longer meet their TTFT objective, each with its refusal. Call it after
        a step."""
        found: list[tuple[Sequence, Overloaded]] = []
        for sequence in list(self._held):
            wanted_s = sequence.request.arrival_s + self._wanted_s(sequence)
            if sequence in self._held and now + sequence.prefill_s > wanted_s and self._busy(sequence, queues):
                refusal = self._refusal(sequence, queues, self._predicted_s(sequence, queues, now))
                found += [(each, refusal) for each in self._take_group(sequence)]
        return [(each, refusal) for each, refusal in found if queues.find(each.request.request_id) is each]

    def _take_group(self, sequence: Sequence) -> list[Sequence]:
        """Returns all completions of the sequence's request that wait without a promise, and removes them from the list
        of held sequences."""
        group = sequence.request.group_id
        taken = [s for s in self._held if s.request.group_id == group]
        self._held = [s for s in self._held if s.request.group_id != group]
        return taken

    def ended(self, sequence: Sequence) -> None:
        """Learn the length of an answer that has ended."""
        self._ahead.ended(sequence)

    @staticmethod
    def _wanted_s(sequence: Sequence) -> float:
        return sequence.objectives.ttft_s or 0.0

    @staticmethod
    def _others_go_on(queues: Queues) -> bool:
        """Returns True when a sequence runs, or one waits that is not held. If none does, the first held sequence must
        begin even without a promise."""
        return bool(queues.running) or any(s.rank[1] != HELD for s in queues.waiting)

    @staticmethod
    def _busy(sequence: Sequence, queues: Queues) -> bool:
        """Returns True when a request other than the sequence's own waits or runs."""
        group = sequence.request.group_id
        return any(s.request.group_id != group for s in (*queues.running, *queues.waiting))

    def _predicted_s(self, sequence: Sequence, queues: Queues, now: float, held: Iterable[Sequence] = ()) -> float:
        """Returns the predicted seconds from the sequence's arrival to its first token. held: sequences without a
        promised TTFT that the prediction puts before it."""
        return max(0.0, now - sequence.request.arrival_s) + self._ahead.ttft_s(sequence, queues, held)

    def _refusal(self, sequence: Sequence, queues: Queues, predicted_s: float) -> Overloaded:
        wanted_s = self._wanted_s(sequence)
        retry_s = max(0.0, predicted_s - wanted_s)
        return Overloaded(
            "The request could not be answered in time.",
            retry_after_s=retry_s,
            why=f"Its first token is expected after {predicted_s:.1f} s, and {wanted_s:g} s is the objective: "
            f"{len(queues.waiting)} requests wait and {len(queues.running)} run.",
            fix=f"Try again in {max(1, math.ceil(retry_s))} s.",
        )
