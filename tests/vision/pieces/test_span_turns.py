"""No gap grows beyond the rule while rows of an image that see each other go through the language model. Seconds are
those of a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tests.vision.pieces.test_whole_spans import Together
from tests.vision.predicted.costs import PartsCost, RowCost, encode_cost_of
from tests.vision.predicted.test_simulated_images import Noted, run
from twostroke.cost.encode_pieces import LEAST_ROWS
from twostroke.cost.span_pieces import SpanCost, SpanShare
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.encode import EncodePace, PieceKind, PieceTime
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

LAYERS, ROWS = 12, 400
P, A = PieceKind.SPAN_PRODUCTS, PieceKind.SPAN_ATTENTION
PARTS = (*(SpanShare(kind, 1 / LAYERS) for _ in range(LAYERS) for kind in (A, P)),)
COST = SpanCost(PartsCost(0.004, 1e-6), PARTS, 512)
"""A model that takes 1.6 s for the products of 400 rows, and less for their attention."""
FREE = encode_cost_of(RowCost(0.0, 0.0, 0.0), 4, layers=8)
"""Encodes that take no time."""


class InPieces(Noted):
    """Pieces of spans take the predicted seconds, times a factor of their kind."""

    factors = {P: 1.0, A: 1.0}

    def execute(self, plan: Plan) -> StepResult:
        span = plan.span
        if span is None:
            return super().execute(plan)
        own = super().execute(replace(plan, span=None)) if plan.sequences else StepResult({})
        times = (PieceTime(each.kind, each.seconds, self.factors[each.kind] * each.seconds) for each in span.pieces)
        result = replace(own, span_times=tuple(times))
        result = replace(result, model_s=own.model_s + result.span_s)
        self._clock.advance(result.span_s)
        self.steps[len(self.steps) - bool(plan.sequences) :] = [(plan, result)]
        return result


class Wrong(InPieces):
    """A cost model that errs by kind, as a guessed one does."""

    factors = {P: 2.5, A: 0.2}


@pytest.mark.parametrize("machine", [InPieces, Wrong])
@pytest.mark.parametrize("step_tokens", [1024, 128])
def test_no_gap_grows_beyond_the_rule_while_images_are_read(machine: type[Noted], step_tokens: int) -> None:
    """Two prompts with two images each run next to a stream. An image may have more rows than a step."""
    rule = GapRule()
    images = Together((ROWS, ROWS), 2 * ROWS + 4, FREE)
    asked = [WorkloadRequest(0.0, 30, 400), *(WorkloadRequest(0.1 + place, 2 * ROWS + 300, 3) for place in range(2))]
    spans = replace_rows(COST, step_tokens)
    steps, _, lengths = run(*asked, images=images, rule=rule, step_tokens=step_tokens, machine=machine, spans=spans)
    works = [plan.span for plan, _ in steps if plan.span is not None]
    assert sum(work.ends for work in works) == 4 and all(work.planned.num_tokens == ROWS for work in works)
    assert all(seconds <= rule.least_s for seconds in lengths)
    beside = [seconds for (plan, _), seconds in zip(steps, lengths, strict=True) if plan.span and not plan.span.ends]
    assert len(beside) > 12 and sum(beside) > 0.7 * rule.least_s * len(beside), "the time is used"
    assert all(any(each.samples for each in plan.sequences) for plan, _ in steps if plan.span is not None)


def replace_rows(cost: SpanCost, most_rows: int) -> SpanCost:
    return SpanCost(cost.cost, cost.parts, most_rows)


def test_without_streams_an_image_is_a_part_of_a_chunk() -> None:
    images = Together((ROWS,), ROWS + 4, FREE)
    steps, _, _ = run(WorkloadRequest(0.0, ROWS + 30, 3), images=images, rule=GapRule(), step_tokens=1024, spans=COST)
    assert not any(plan.span for plan, _ in steps) and steps[0][0].num_tokens == ROWS


def test_without_streams_an_image_of_more_rows_than_a_step_is_one_step() -> None:
    images = Together((ROWS,), ROWS + 4, FREE)
    spans = replace_rows(COST, 64)
    asked = WorkloadRequest(0.0, ROWS + 30, 3)
    steps, _, _ = run(asked, images=images, rule=GapRule(), machine=InPieces, spans=spans)
    (work,) = (plan.span for plan, _ in steps if plan.span is not None)
    assert work.ends and max(piece.end - piece.first for piece in work.pieces) == ROWS  # an attention has all rows
    assert max(piece.end - piece.first for piece in work.pieces if piece.kind is P) == 64


def test_pieces_go_through_all_rows_of_all_parts_in_order() -> None:
    walk, seen = replace_rows(COST, 96).walk(5, ROWS), list[tuple[int, int]]()
    while (piece := walk.take(0.15, least=True)) is not None:
        count, whole = piece.end - piece.first, piece.end == ROWS
        assert (piece.part, piece.first) == (seen[-1] if seen else (0, 0))
        assert piece.seconds <= 0.15 or count == (ROWS if piece.kind is A else LEAST_ROWS)
        assert count == ROWS if piece.kind is A else count % LEAST_ROWS == 0 and count <= 96 or whole
        seen.append((piece.part + whole, 0 if whole else piece.end))
    assert walk.done and seen[-1] == (len(PARTS), 0)


def test_a_piece_that_does_not_fit_waits_where_it_may() -> None:
    walk, pace = COST.walk(0, ROWS), EncodePace()
    assert walk.take(0.0, least=False) is None and not walk.fits(0.0, pace)
    first = walk.take(0.0, least=True)
    assert first is not None and first.kind is A and first.end == ROWS
    assert walk.take(0.0, least=False) is None
    assert walk.fits(inf, pace) and COST.least_s(ROWS) >= first.seconds
