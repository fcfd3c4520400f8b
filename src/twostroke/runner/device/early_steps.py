"""Which step a device may begin before the results of the one ahead are looked at, and whether a plan asks for it.

Sequences that decode have one more token in the next step, whatever the token before it is. The host knows all of
such a step but these tokens, which are on the device. What was begun is never taken on trust: a row counts where the
plan that is made later asks for exactly it.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.types.plan import Hold, Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.spec.formats import PAGE_TOKENS

NOT_KNOWN_YET = 0
"""In place of a token that is on the device: a token that every vocabulary has."""
STEADY = (None, Hold.SEQUENCES, Hold.PAGES, Hold.CALL)
"""Why requests wait where the next step admits none, unless a sequence ends."""


class OneMore(Sequence[int]):
    """Known tokens and one more that is not known yet. It has the length that `known` had, however long that grows."""

    __slots__ = ("_length",)

    def __init__(self, known: Sequence[int]) -> None:
        self._length = len(known) + 1

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int | slice) -> int | list[int]:  # type: ignore[override]
        return NOT_KNOWN_YET if isinstance(place, int) else [NOT_KNOWN_YET] * len(range(*place.indices(self._length)))


def following(plan: Plan) -> list[PlannedSequence]:
    """The sequences of the step after this plan, as far as they are known; nothing where too little is.

    Nothing where the next step will hold a prompt: a step reads all weights, so prompts belong to the streams' step.
    """
    if plan.held not in STEADY:
        return []
    found: list[PlannedSequence] = []
    for each in plan.sequences:
        if not each.samples or each.draft_token_ids or not steady(each.request):
            return []
        if each.num_output_tokens + 1 < each.request.max_tokens:
            if any(len(table) * PAGE_TOKENS <= each.end for table in each.tables):
                return []
            found.append(_next(each))
    waits = plan.held is not None and len(found) < len(plan.sequences)
    return [] if waits else found


def steady(request: Request) -> bool:
    """Whether a device samples the request's next row without knowing the token before it."""
    params = request.params
    counts = params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
    outside = request.steered or request.mask is not None or request.pooling is not None
    outside = outside or params.has_chain or params.repeats_cost
    return not (counts or outside or params.bad_token_ids)


def _next(each: PlannedSequence) -> PlannedSequence:
    known = OneMore(each.known_token_ids)
    return PlannedSequence(
        each.request, each.end, 1, known, each.tables, samples=True, role=Role.DECODE, state_slot=each.state_slot
    )


def is_same(planned: PlannedSequence, begun: PlannedSequence, token_id: int | None) -> bool:
    """Whether a plan asks for what was begun, after this token."""
    if planned.request is not begun.request or (planned.start, planned.num_tokens) != (begun.start, 1):
        return False
    decodes = planned.samples and planned.role is Role.DECODE
    if not decodes or planned.draft_token_ids or planned.scores or planned.alone:
        return False
    known = planned.known_token_ids
    return len(known) == len(begun.known_token_ids) and known[-1] == token_id and _same_pages(planned, begun)


def _same_pages(planned: PlannedSequence, begun: PlannedSequence) -> bool:
    """Pages that the plan gives back behind a window are not read."""
    count = -(-planned.end // PAGE_TOKENS)
    for new, old in zip(planned.tables, begun.tables, strict=True):
        if new is not old and new[:count] != old[:count]:
            if any(page not in (-1, before) for page, before in zip(new[:count], old[:count], strict=True)):
                return False
    return True
