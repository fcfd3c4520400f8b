"""A plan while the scheduler makes it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.types.plan import NO_COPIES, NO_TURN, Copies, EncodeTurn, Hold, Plan, PlannedSequence, Preemption


class PlanInWork(Struct):
    """drafts: the draft tokens by request id, for the sequences that decode. load: what limits must know of the plan so
    far. made_room: the sequences preempted since the last plan, before this one was begun. held_calls: the request
    groups from which no further sequence may enter."""

    now: float
    load: StepLoad = field(default_factory=StepLoad)
    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    planned: dict[str, PlannedSequence] = field(default_factory=dict)
    preempted: list[Preemption] = field(default_factory=list)
    made_room: tuple[Preemption, ...] = ()
    held_calls: frozenset[str] = frozenset()

    def plan(
        self, step_id: int, held: Hold | None, copies: Copies = NO_COPIES, turn: EncodeTurn = NO_TURN
    ) -> Plan:
        """Returns the plan, now that all sequences are in it."""
        sequences = tuple(self.planned.values())
        drafted = sum([len(each.draft_token_ids) for each in sequences]) if self.drafts else 0
        preempted = (*self.made_room, *self.preempted)
        return Plan(step_id, sequences, preempted, held, copies.states, drafted, copies.pages, *turn)
