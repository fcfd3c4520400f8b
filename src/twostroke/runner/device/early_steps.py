"""Decides which step a device may begin before the host has read the results of the step ahead. Decides later whether a
plan asks for what was begun.

Sequences that decode have one more token in the next step, whatever the token before it is. The host knows everything
of such a step but these tokens, which are on the device. A row that was begun is used only where the plan that is made
later asks for exactly this row.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.types.plan import Hold, Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.spec.formats import PAGE_TOKENS

NOT_KNOWN_YET = 0
"""The token id that stands in place of a token on the device. Every vocabulary has it."""
STEADY = (None, Hold.SEQUENCES, Hold.PAGES, Hold.CALL)
"""The values of `Plan.held` after which the next step admits no request, as long as no sequence ends. None: no request
waits."""


class OneMore(Sequence[int]):
    """The known tokens and one more that is not known yet. Its length does not change, even if `known` grows. Reading
    any of its tokens gives NOT_KNOWN_YET."""

    __slots__ = ("_length",)

    def __init__(self, known: Sequence[int]) -> None:
        self._length = len(known) + 1

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int | slice) -> int | list[int]:  # type: ignore[override]
        return NOT_KNOWN_YET if isinstance(place, int) else [NOT_KNOWN_YET] * len(range(*place.indices(self._length)))


def following(plan: Plan) -> list[PlannedSequence]:
    """Returns the sequences of the step after this plan, as far as they are known. The list is empty where too little
    is known.

    It is also empty where the next step will hold a prompt. A step reads all weights, so prompts should be in the same
    step as the streams.
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
    """Returns whether a device can sample the request's next row without knowing the token before it."""
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
    """Returns whether a plan asks for exactly the row that was begun. token_id: the token before that row."""
    if planned.request is not begun.request or (planned.start, planned.num_tokens) != (begun.start, 1):
        return False
    decodes = planned.samples and planned.role is Role.DECODE
    if not decodes or planned.draft_token_ids or planned.scores or planned.alone:
        return False
    known = planned.known_token_ids
    return len(known) == len(begun.known_token_ids) and known[-1] == token_id and _same_pages(planned, begun)


def _same_pages(planned: PlannedSequence, begun: PlannedSequence) -> bool:
    """Returns whether both have the same pages. Pages that the plan gives back because of a window are not compared: no
    row reads them."""
    count = -(-planned.end // PAGE_TOKENS)
    for new, old in zip(planned.tables, begun.tables, strict=True):
        if new is not old and new[:count] != old[:count]:
            if any(page not in (-1, before) for page, before in zip(new[:count], old[:count], strict=True)):
                return False
    return True
