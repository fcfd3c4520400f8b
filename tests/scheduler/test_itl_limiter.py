"""The limiter: no chunk is past the bound but the minimum, predictions are few, and ends are aligned."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tests.scheduler.fakes import PAGE, LineCost, promised, request
from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.limits.chunk_sizer import FILLED_SHARE, KEPT_SHARE, MIN_CHUNK_TOKENS, ChunkSizer
from twostroke.engine.scheduler.limits.limits import SchedulerLimits

ALIGN = 16


@example(0, 0, 3552, 0, 0.0005438224715654805, 0.0, 0.09375)  # what fits ends well before the bound: two more halvings
@given(
    streams=st.integers(0, 60),
    start=st.integers(0, 3000),
    wanted=st.integers(2, 4000),
    more=st.integers(0, 1),
    row_s=st.floats(1e-6, 1e-3),
    jagged_s=st.sampled_from([0.0, 0.0, 0.02]),
    bound_s=st.floats(0.001, 0.2),
)
def test_a_chunk_keeps_the_bound_or_is_the_minimum(
    streams: int, start: int, wanted: int, more: int, row_s: float, jagged_s: float, bound_s: float
) -> None:
    cost = LineCost(row_s=row_s, jagged_s=jagged_s)
    sizer = ChunkSizer(lambda segments: cost.predict(segments).seconds, ALIGN)
    base = [Segment.decode(100)] * streams
    remaining = wanted + more
    chunk = sizer.chunk(base, start, wanted, remaining, bound_s)
    assert cost.calls <= 8
    assert 1 <= chunk.num_tokens <= wanted
    seconds = cost.seconds([*base, Segment.prefill(start, chunk.num_tokens, False)])
    assert chunk.seconds == seconds and chunk.within == (seconds <= bound_s)
    assert chunk.within or chunk.num_tokens <= MIN_CHUNK_TOKENS
    assert chunk.num_tokens == wanted or (start + chunk.num_tokens) % ALIGN == 0
    if jagged_s == 0.0 and chunk.num_tokens < wanted:
        assert cost.calls <= 7
        larger = cost.seconds([*base, Segment.prefill(start, min(wanted, chunk.num_tokens + 2 * ALIGN), False)])
        assert larger > FILLED_SHARE * bound_s, "more would have fitted"


def test_a_step_keeps_the_itl_of_its_streams_and_without_streams_a_share_of_the_ttft() -> None:
    world = promised(limits=SchedulerLimits(2000, 32), pages=20_000)
    world.add(request(1, 40, 100))
    world.step()
    assert world.tokens["1"], "a short prompt alone is one step"
    world.add(request(2, 3000, 10))
    note = world.step()
    assert note is not None and note.num_tokens > 200 and note.seconds <= KEPT_SHARE * 0.05
    assert note.seconds > FILLED_SHARE * KEPT_SHARE * 0.05, "the step is filled"
    alone = promised(ttft_s=0.4, limits=SchedulerLimits(2000, 32), pages=20_000)
    alone.add(request(1, 4000, 10))
    first = alone.step()
    assert first is not None and 0.09 < first.seconds <= 0.1


def test_streams_that_leave_no_room_do_not_stop_the_first_prompt_and_do_stop_the_second() -> None:
    world = promised(itl_s=0.012, limits=SchedulerLimits(512, 8))
    for number in range(2):
        world.add(request(number, 500, 50))
    for _ in range(500):
        note = world.step()
        assert note is not None
        prompts = [part for part in note.parts if part.prefill]
        if len(prompts) < len(note.parts) and prompts and note.seconds > 0.012:
            assert len(prompts) == 1 and prompts[0].num_tokens <= MIN_CHUNK_TOKENS
        if len(world.ended) == 2:
            break
    assert len(world.ended) == 2


def test_who_enters_with_one_token_left_does_not_follow_a_chunk_that_fills_the_bound() -> None:
    """A prompt that is cached except for one token is one row, and one row too many is past the bound."""
    world = promised(itl_s=0.02, cost=LineCost(row_s=0.0001, stream_s=0.002), limits=SchedulerLimits(512, 16))
    shared = request(1, 4 * PAGE + 1, 1)
    world.run([shared])
    world.add(request(2, 20, 200))
    world.step()
    world.add(request(3, 400, 5))
    cached = [replace(shared, request_id=f"c{n}", group_id=f"c{n}", priority=1) for n in range(6)]
    for each in cached:
        world.add(each)
    for _ in range(50):
        note = world.step()
        assert note is not None and note.seconds <= 0.02
    assert all(each.request_id in world.ended for each in cached)


def test_only_one_of_those_that_enter_with_one_token_left_is_forced_into_a_full_step() -> None:
    world = promised(itl_s=0.011, limits=SchedulerLimits(512, 16))
    shared = request(1, 4 * PAGE + 1, 1)
    world.run([shared])
    world.add(request(2, 20, 200))
    world.step()
    cached = [replace(shared, request_id=f"c{n}", group_id=f"c{n}", priority=1) for n in range(6)]
    for each in cached:
        world.add(each)
    for _ in range(60):
        note = world.step()
        assert note is not None
        assert sum(part.prefill for part in note.parts) <= 1
    assert all(each.request_id in world.ended for each in cached)
