"""A plan while the scheduler makes it.

Knows: what the step holds so far.
Must not know: which sequence is next, limits, pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twostroke.scheduler.limits import StepLoad
from twostroke.types.plan import Hold, Plan, PlannedSequence, Preemption


@dataclass(slots=True)
class PlanInWork:
    """drafts: by request id, what may be guessed of the sequences that decode. load: what limits must know of it."""

    now: float
    load: StepLoad = field(default_factory=StepLoad)
    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    planned: dict[str, PlannedSequence] = field(default_factory=dict)
    preempted: list[Preemption] = field(default_factory=list)

    def plan(self, step_id: int, held: Hold | None, state_copies: tuple[tuple[int, int], ...] = ()) -> Plan:
        """The plan, now that all are in."""
        sequences = tuple(self.planned.values())
        drafted = sum([len(each.draft_token_ids) for each in sequences]) if self.drafts else 0
        return Plan(step_id, sequences, tuple(self.preempted), held, state_copies, drafted)
