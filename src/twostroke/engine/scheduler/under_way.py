"""The plans that were made and are not committed yet, and the sequences that they hold.

One process commits each plan before the next is made. A pipeline computes as many plans at a time as it has stages.
All stages compute plans in the order in which they were made, so a page that is free again may go to a later plan at
once. The rules of several plans under way:

    a sequence is in one plan at a time. Chunks of its prompt may follow one another: a chunk needs no result of the one
        before, only its K and V, which every stage has by then
    sequences that decode may be shared out among the plans, so that each stage has some to compute
    a sequence that is in a plan is not preempted
    a result counts where the sequence is still in the admission in which the plan was made: it may have ended meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class Held(NamedTuple):
    """What a plan holds. sequences: its sequences in its order, each with its admission when the plan was made.

    copied: the requests that are copied from others in this plan. since_s: the end of the last step before it.
    """

    sequences: list[tuple[Sequence, int | None]]
    copied: list[str]
    since_s: float


Share = Callable[[list[Sequence]], int]
"""(all sequences that decode) -> the most of them that a plan should hold."""


class UnderWay:
    """most: plans at a time. follows: whether chunks of a prompt may follow one another before they are computed.

    share: how the sequences that decode are shared out; evenly by default.
    """

    def __init__(self, most: int, follows: bool) -> None:
        self._most, self._follows = most, follows
        self.share: Share = self._evenly
        self._open: dict[int, Held] = {}
        self._since_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def room(self) -> bool:
        """Whether another plan may be made."""
        return len(self._open) < self._most

    def nothing_waited(self, now: float) -> None:
        """No sequence runs: no plan's time began before now."""
        self._since_s = now

    def skipped_to(self, now: float) -> None:
        """Steps that were not planned one by one have ended now."""
        self._since_s = now

    def turn(self, decoding: list[Sequence]) -> tuple[list[Sequence], int]:
        """(those of the decoding sequences that the next plan may hold, the most of them that it should).

        No sequence waits for ever: if each plan in flight had its full share, all plans together would hold more
        sequences than there are.
        """
        if self._most == 1:
            return decoding, len(decoding)
        return [each for each in decoding if not each.under_way], self.share(decoding)

    def _evenly(self, decoding: list[Sequence]) -> int:
        return -(-len(decoding) // self._most)

    def beside(self, decoding: list[Sequence], planned: Container[str]) -> list[Sequence]:
        """The decoding sequences that wait for another plan than this one, and so for this one, too."""
        if self._most == 1:
            return []
        return [each for each in decoding if each.request.request_id not in planned]

    def may_plan(self, sequence: Sequence) -> bool:
        """Whether the next plan may hold this sequence, which does not decode."""
        if not sequence.under_way:
            return True
        again = sequence.admission is None or sequence.request.pooling is not None
        return self._follows and not again and sequence.remaining > 0

    def open(self, plan: Plan, load: StepLoad, copied: list[str]) -> None:
        """The plan was made of this load: its known positions count as computed from now on. copied: see Held."""
        held = Held([], copied, self._since_s)
        for planned, (sequence, _) in zip(plan.sequences, load.parts, strict=True):
            sequence.computed = planned.start + planned.num_tokens - len(planned.draft_token_ids)
            sequence.under_way += 1
            held.sequences.append((sequence, sequence.admission))
        self._open[plan.step_id] = held

    def close(self, plan: Plan, result: StepResult, now: float) -> tuple[float, Held]:
        """The plan was computed: (how long its streams waited for it, in seconds; what it held).

        Streams wait from the end of the last step before the plan was made; what the driver does in between is
        included. Where the executor's own time after the plan is longer, that counts.
        """
        held = self._open.pop(plan.step_id)
        for sequence, _ in held.sequences:
            sequence.under_way -= 1
        self._since_s = now
        return max(now - held.since_s, result.model_s + result.sampling_s - result.early_s), held
