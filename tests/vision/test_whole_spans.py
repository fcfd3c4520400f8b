"""The limit that keeps rows of an image in one step, over every chunk that the limits before it may ask for."""

from __future__ import annotations

import pytest

from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.limits.whole_spans import WholeSpans
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.images import ImageSpan, ImageTile
from twostroke.types.request import Request
from twostroke.types.sampling_params import SamplingParams

TILE = ImageTile(-1, 2, 4, 8, 8, b"")
LENGTH = 40


def sequence_of(*spans: ImageSpan, computed: int = 0) -> Sequence:
    params, ids = SamplingParams(max_tokens=4), (0,) * LENGTH
    request = Request("r", "r", ids, params, 1, 4, frozenset(), 0.0, images=spans)
    made = Sequence(request, 1, [0] * LENGTH)
    made.computed = computed
    return made


@pytest.mark.parametrize("computed", range(0, LENGTH))
def test_no_chunk_ends_inside_of_a_span(computed: int) -> None:
    spans = (ImageSpan(5, TILE, together=True), ImageSpan(20, TILE, together=True))
    inside = {place for span in spans for place in range(span.first + 1, span.end)}
    rule, sequence = WholeSpans(64, 64), sequence_of(*spans, computed=computed)
    for wanted in range(LENGTH - computed + 1):
        found = rule.limit(sequence, wanted, StepLoad())
        assert computed + found not in inside or not found
        assert bool(found) == bool(wanted)
        if computed + wanted not in inside:
            assert found == wanted


def test_a_span_waits_for_room_and_gets_it_beyond_softer_limits() -> None:
    sequence = sequence_of(ImageSpan(5, TILE, together=True), computed=5)
    rule = WholeSpans(16, 12)
    assert rule.limit(sequence, 1, StepLoad(num_tokens=8)) == 8
    assert rule.limit(sequence, 1, StepLoad(num_tokens=9)) == 0
    assert WholeSpans(16, 7).limit(sequence, 7, StepLoad()) == 0
    assert rule.limit(sequence, 0, StepLoad()) == 0


def test_rows_that_do_not_see_each_other_are_cut_anywhere() -> None:
    sequence = sequence_of(ImageSpan(5, TILE))
    assert [WholeSpans(64, 64).limit(sequence, count, StepLoad()) for count in range(20)] == list(range(20))
