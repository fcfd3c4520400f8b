"""A plan while the scheduler puts it together."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.types.plan import (
    NO_COPIES,
    NO_TURN,
    Copies,
    EncodeTurn,
    Hold,
    Plan,
    PlannedSequence,
    Preemption,
    SpanWork,
)


class PlanInWork(Struct):
    """A plan that the scheduler is still putting together. drafts: the guesses by request id, for the sequences that
    decode. load: the rows of the plan so far, for the limiters. made_room: the sequences that were preempted after the
    last plan and before this one. held_calls: the API calls (request groups) of which no further sequence is admitted,
    because they have many places in the batch (`Places`). span: the pieces of an image span that the step computes
    after its sequences; see Plan."""

    now: float
    load: StepLoad = field(default_factory=StepLoad)
    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    planned: dict[str, PlannedSequence] = field(default_factory=dict)
    preempted: list[Preemption] = field(default_factory=list)
    made_room: tuple[Preemption, ...] = ()
    held_calls: frozenset[str] = frozenset()
    span: SpanWork | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the plan computes nothing."""
        return not self.planned and self.span is None

    @property
    def request_ids(self) -> set[str]:
        """The ids of the requests in the plan, whose pages must not be taken."""
        return set(self.planned) if self.span is None else {*self.planned, self.span.request_id}

    def plan(self, step_id: int, held: Hold | None, copies: Copies = NO_COPIES, turn: EncodeTurn = NO_TURN) -> Plan:
        """Returns the finished plan, now that all sequences are in it. held: why the first waiting request was not
        admitted. turn: the image tile that the step encodes, and for how long."""
        sequences = tuple(self.planned.values())
        drafted = sum([len(each.draft_token_ids) for each in sequences]) if self.drafts else 0
        preempted = (*self.made_room, *self.preempted)
        return Plan(step_id, sequences, preempted, held, copies.states, drafted, copies.pages, *turn, self.span)
