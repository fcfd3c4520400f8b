"""The plans that were made and are not committed yet, and the sequences that they hold.

A model in a single process has one plan at a time: it is committed before the next is made. A pipeline computes as many
plans at a time as it has stages. All stages compute plans in the order in which they were made, so a page that is free
again may go to a later plan at once. The rules of several plans under way:

    a sequence is in one plan at a time. Chunks of its prompt may follow one another: a chunk needs no result of the one
        before, only its K and V, which every stage has by then
    sequences that decode may be shared out among the plans, so that each stage has some to compute
    a sequence that is in a plan is not preempted
    a result counts only if the sequence has the same admission as when the plan was made: it may have ended meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class PlanHeld(NamedTuple):
    """What a plan that is not committed contains. sequences: the plan's sequences in its order, each with its
    `admission` when the plan was made. If the plan computes pieces of a span of image rows, the sequence of this span
    comes last.

    copied: ids of the requests whose last page and state this plan copies from another sequence (`Steering.branch`).
    since_s: the time at which the last step before the plan ended.
    """

    sequences: list[tuple[Sequence, int | None]]
    copied: list[str]
    since_s: float


Share = Callable[[list[Sequence]], int]
"""Called with all sequences that decode; returns the most of them that a plan should hold."""


class UnderWay:
    """Keeps the plans that are not committed. most: the most plans at a time. follows: True when the next chunk of a
    prompt may be planned before the chunk before it is committed.

    share: a function that returns how many of the decoding sequences a plan should hold; by default they are divided
    evenly among the plans.
    """

    def __init__(self, most: int, follows: bool) -> None:
        self._most, self._follows = most, follows
        self.share: Share = self._evenly
        self._open: dict[int, PlanHeld] = {}
        self._since_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def room(self) -> bool:
        """True when another plan may be made."""
        return len(self._open) < self._most

    def nothing_waited(self, now: float) -> None:
        """Note that no sequence runs at `now`: the waiting time of the next plan's streams (`close`) begins here."""
        self._since_s = now

    def skipped_to(self, now: float) -> None:
        """Note that the last step ended at `now`. The simulator calls this after it has computed several steps at once,
        without plans."""
        self._since_s = now

    def turn(self, decoding: list[Sequence]) -> tuple[list[Sequence], int]:
        """Returns (the decoding sequences that the next plan may hold, the most of them that it should hold).

        Sequences that another plan holds are left out. The second number is by default an equal part for each stage,
        rounded up. The plans of all stages together then have room for all sequences, so that none waits for ever.
        """
        if self._most == 1:
            return decoding, len(decoding)
        return [each for each in decoding if not each.under_way], self.share(decoding)

    def _evenly(self, decoding: list[Sequence]) -> int:
        return -(-len(decoding) // self._most)

    def beside(self, decoding: list[Sequence], planned: Container[str]) -> list[Sequence]:
        """Returns the decoding sequences that are not in this plan: their next tokens wait while it is computed."""
        if self._most == 1:
            return []
        return [each for each in decoding if each.request.request_id not in planned]

    def may_plan(self, sequence: Sequence) -> bool:
        """Returns True when a sequence in prefill may be in the next plan. A sequence that is in a plan already may be
        in another one only for the next chunk of its prompt, and only if `follows`."""
        if not sequence.under_way:
            return True
        again = sequence.admission is None or sequence.request.pooling is not None
        return self._follows and not again and sequence.remaining > 0

    def open(self, plan: Plan, load: StepLoad, copied: list[str]) -> None:
        """Note a plan that was made from this load. The positions of known tokens in it count as computed from now on;
        those of guesses do not. copied: see PlanHeld."""
        held = PlanHeld([], copied, self._since_s)
        for planned, (sequence, _) in zip(plan.sequences, load.parts, strict=True):
            sequence.computed = planned.start + planned.num_tokens - len(planned.draft_token_ids)
            sequence.under_way += 1
            held.sequences.append((sequence, sequence.admission))
        if plan.span is not None and load.span is not None:
            sequence = load.span.sequence
            sequence.computed = plan.span.planned.end if plan.span.ends else plan.span.planned.start
            sequence.under_way += 1
            held.sequences.append((sequence, sequence.admission))
        self._open[plan.step_id] = held

    def close(self, plan: Plan, result: StepResult, now: float) -> tuple[float, PlanHeld]:
        """Note that the plan was computed. Returns (how long its streams waited for it, in seconds; its content).

        Streams wait from the end of the last step that ended before the plan was made, so pauses between steps are
        included. When the executor's own time for the plan is longer, that time counts.
        """
        held = self._open.pop(plan.step_id)
        for sequence, _ in held.sequences:
            sequence.under_way -= 1
        self._since_s = now
        return max(now - held.since_s, result.model_s + result.sampling_s - result.early_s), held
