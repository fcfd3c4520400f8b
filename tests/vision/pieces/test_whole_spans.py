"""The limit that keeps rows of an image in one step, with every chunk that the limits before it may choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.vision.folders import write_family
from tests.vision.predicted.costs import RowCost, encode_cost_of
from tests.vision.predicted.test_simulated_images import ROW_S, run
from twostroke.assembly.find import find_model
from twostroke.assembly.settings import config
from twostroke.assembly.settings.engine_settings import StepSettings
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import WorkCounter
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.limits.whole_spans import WholeSpans
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.lab.sim.images import SimulatedImages
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.models.common.work import work_of
from twostroke.types.images import ImageSpan, ImageTile, later_pairs
from twostroke.types.plan import Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import KVKind

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


class Together(SimulatedImages, frozen=True):
    """A model in which rows of each image see each other."""

    def shown_by(self, request: Request) -> Request:
        shown = super().shown_by(request)
        return replace(shown, images=tuple(structs.replace(span, together=True) for span in shown.images))


def test_a_gap_grows_by_one_image_at_most() -> None:
    """Two prompts with two images each run next to a stream. The rule is kept, except by steps that contain one image
    alone."""
    rule, rows = GapRule(), 400
    images = Together((rows, rows), 2 * rows + 4, encode_cost_of(RowCost(0.0, 0.0, 0.0), 4, layers=8))
    asked = [WorkloadRequest(0.0, 30, 400), *(WorkloadRequest(0.1 + place, 2 * rows + 300, 3) for place in range(2))]
    steps, _, lengths = run(*asked, images=images, rule=rule, step_tokens=1024)
    chunks = [[each for each in plan.sequences if each.role is Role.PREFILL] for plan, _ in steps]
    longer = [own for own, seconds in zip(chunks, lengths, strict=True) if seconds > rule.least_s]
    assert len(longer) == 4 and all(len(own) == 1 and own[0].num_tokens == rows for own in longer)
    assert max(lengths) <= ROW_S * rows + 2 * min(lengths)
    assert sum(map(len, chunks)) > 8, "the words after the images are in steps of their own"


def test_the_predicted_step_counts_all_rows_of_an_image() -> None:
    """The step that computes a span is predicted with each of its rows before it runs."""
    rule, rows = GapRule(), 400
    images = Together((rows,), rows + 4, encode_cost_of(RowCost(0.0, 0.0, 0.0), 4, layers=8))
    asked = [WorkloadRequest(0.0, 30, 60), WorkloadRequest(0.1, rows + 30, 3)]
    steps, _, lengths = run(*asked, images=images, rule=rule, step_tokens=1024)
    (whole,) = [place for place, (plan, _) in enumerate(steps) if plan.num_tokens > rows]
    rest = [seconds - ROW_S * plan.num_tokens for (plan, _), seconds in zip(steps, lengths, strict=True)]
    assert rest[whole] == pytest.approx(rest[-1], abs=ROW_S) and rest[-1] < 0.1 * lengths[whole]


@pytest.mark.parametrize(("options", "told"), [({}, True), ({"itl": "1ms"}, True), ({"max_step_tokens": 64}, False)])
def test_a_start_says_what_a_step_with_an_image_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: bool
) -> None:
    """The start reports it where a limit of time is kept and such a step is predicted to be longer."""
    write_family("gemma3", tmp_path)
    monkeypatch.setattr(config, "GapRule", lambda: GapRule(least_s=0.0))
    found = find_model(str(tmp_path), {"context": 512, "kv_memory": "2MB", **options})
    reason = found.resolver.resolved().reason_of(StepSettings.step_limiter)
    assert ("the 16 rows of an image see each other and go through the model in pieces" in reason) is told


def test_a_start_of_a_model_whose_rows_see_what_came_before_says_nothing(tmp_path: Path) -> None:
    write_family("qwen3-vl", tmp_path)
    found = find_model(str(tmp_path), {"context": 512, "kv_memory": "2MB"})
    assert "see each other" not in found.resolver.resolved().reason_of(StepSettings.step_limiter)


def test_later_positions_of_a_span_are_counted_as_earlier_ones(tmp_path: Path) -> None:
    """Rows of a span that see each other cost attention as many pairs as rows times rows."""
    write_family("gemma3", tmp_path)
    found = find_model(str(tmp_path), {"images": "on", "weights": "f32"})
    table = work_of(found.spec, "f32", KVKind.F32)
    counter, rows = WorkCounter(table), 8
    plain, whole = (counter.step([Segment(5, rows, False, Role.PREFILL, later=later)]) for later in (0, 28))
    pair_flops = sum(seen.pair_flops for seen in table.seen)
    assert whole.attention.flops - plain.attention.flops == 28 * pair_flops > 0
    assert later_pairs([ImageSpan(5, TILE, together=True), ImageSpan(20, TILE)], 0, 40) == 28
    assert later_pairs([ImageSpan(5, TILE, together=True)], 10, 40) == 3  # the first five rows came from cached pages
    assert later_pairs([ImageSpan(5, TILE, together=True)], 13, 40) == 0


def test_a_planned_step_counts_its_spans() -> None:
    sequence, step = sequence_of(ImageSpan(5, TILE, together=True)), StepLoad()
    step.add(sequence, 20)
    assert [segment.later for segment in step.segments()] == [28]
