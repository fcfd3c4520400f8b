"""The order by promise, the turns of the oldest, and the share of batch work: each alone and in a scheduler."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.fakes import LineCost, World, promised, request
from tests.tiers import examples
from twostroke.engine.scheduler.ageing import TURN_STEPS
from twostroke.engine.scheduler.limits.batch_share import BATCH_SHARE
from twostroke.engine.scheduler.limits.last_chunk import SmallLastChunk
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.request import Request

LEAST_CHUNK = 29  # 32 rows from a start that is a multiple of the page of 4, or up to 3 fewer


def first_planned(world: World) -> list[str]:
    seen: list[str] = []
    for note in world.steps:
        seen += [part.name for part in note.parts if part.name not in seen]
    return seen


def test_a_short_prompt_overtakes_one_that_is_too_long_for_the_objective() -> None:
    world = promised(ttft_s=0.2, itl_s=None)
    document = request(1, 6000, 4)
    chat = request(2, 40, 4, arrival_s=0.3)
    world.run([document, chat])
    assert world.ttft_s(chat) < 0.15, "served while the document was half computed"
    plain = World(None, SchedulerLimits(512, 32), LineCost()).run([document, chat])
    assert plain.ttft_s(chat) > 0.3, "order of arrival makes it wait"


def test_the_last_chunk_is_small_where_pages_travel_and_short_prompts_stay_whole() -> None:
    world = World(None, SchedulerLimits(64, 4), LineCost())
    world.scheduler.limiters = (SmallLastChunk(4), *world.scheduler.limiters)
    world.run([request(1, 300, 1), request(2, 16, 1, arrival_s=9.0)])
    sizes = [(part.name, part.num_tokens) for note in world.steps for part in note.parts]
    assert sizes == [*[("1", 64)] * 4, ("1", 32), ("1", 12), ("2", 16)]


def test_a_promised_request_keeps_its_place_before_later_ones_with_shorter_objectives() -> None:
    world = promised(ttft_s=1.0, itl_s=None, limits=SchedulerLimits(64, 4), cost=LineCost(row_s=0.0005))
    world.now_s = 10.0
    short, long, last = request(1, 60, 2, 9.9), request(2, 300, 2, 9.9), request(3, 60, 2, 9.95)
    for asked in (short, long, last):
        world.add(asked)
    assert not world.refused
    world.run()
    assert first_planned(world) == ["1", "2", "3"]
    assert all(world.ttft_s(asked) <= 1.0 for asked in (short, long, last))


def flood(world: World, victims: list[Request], sizes: list[tuple[int, int]], steps: int, per_step: int) -> None:
    """Before each step `per_step` new requests arrive, until each victim has a token. Fails after `steps` steps."""
    number = 100
    for asked in victims:
        world.add(asked)
    for _ in range(steps):
        for _ in range(per_step):
            prompt, output = sizes[number % len(sizes)]
            world.add(request(number, prompt, output, world.now_s, group="same"))  # siblings are not refused
            number += 1
        world.step()
        if all(world.tokens[asked.request_id] for asked in victims):
            return
    raise AssertionError(f"starved for {steps} steps")


@settings(max_examples=examples(30), deadline=None)
@given(
    victims=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=4),
    per_step=st.integers(1, 3),
    places=st.integers(1, 6),
    itl_s=st.sampled_from([0.011, 0.05, None]),
)
def test_no_request_starves_within_the_bound(
    victims: list[int], sizes: list[tuple[int, int]], per_step: int, places: int, itl_s: float | None
) -> None:
    """The oldest request may be too long for the objective, while most later ones are not."""
    world = promised(ttft_s=0.012, itl_s=itl_s, limits=SchedulerLimits(64, places), pages=100_000)
    world.now_s = 100.0
    old = [request(number, tokens, 3, arrival_s=1.0, group="same") for number, tokens in enumerate(victims, 1)]
    turns = sum(-(-tokens // LEAST_CHUNK) for tokens in victims)
    longest_prompt = max(max(victims), *(prompt for prompt, _ in sizes))
    longest_output = max(3, *(output for _, output in sizes))
    # With an open turn, all running requests are computed and end before a place becomes free.
    place_steps = places * -(-longest_prompt // LEAST_CHUNK) + longest_output
    flood(world, old, sizes, TURN_STEPS * turns + len(victims) * place_steps, per_step)


def test_without_turns_the_flood_would_starve_them(monkeypatch) -> None:
    monkeypatch.setattr("twostroke.engine.scheduler.ageing.AgeingTurns.open", property(lambda self: False))
    world = promised(ttft_s=0.012, limits=SchedulerLimits(64, 2), pages=100_000)
    world.now_s = 100.0
    try:
        flood(world, [request(1, 30, 3, 1.0, group="same")], [(10, 2)], 400, 2)
    except AssertionError as error:
        assert "starved" in str(error)
    else:
        raise AssertionError("the test's flood starves no request")


@settings(max_examples=examples(30), deadline=None)
@given(
    batch=st.lists(st.integers(2, 400), min_size=1, max_size=3),
    chat=st.integers(2, 200),
    itl_s=st.sampled_from([0.02, 0.05]),
)
def test_batch_work_gets_its_share_and_no_more_than_is_left(batch: list[int], chat: int, itl_s: float) -> None:
    limits = SchedulerLimits(128, 16)
    world = promised(ttft_s=5.0, itl_s=itl_s, limits=limits, pages=100_000)
    work = [request(number, tokens, 2, priority=1) for number, tokens in enumerate(batch, 1)]
    world.add(request(50, 4, 400))
    world.step()
    for asked in work:
        world.add(asked)
    number, interactive, done = 100, 0, 0
    while not all(world.tokens[asked.request_id] for asked in work):
        while world.scheduler.gauges().waiting < 10:
            world.add(request(number, chat, 1, world.now_s, group="same"))
            number += 1
        note = world.step()
        assert note is not None
        prefill = [part for part in note.parts if part.prefill]
        interactive += sum(part.num_tokens for part in prefill if part.priority == 0)
        done += sum(part.num_tokens for part in prefill if part.priority == 1)
        assert interactive <= done * (1 - BATCH_SHARE) / BATCH_SHARE + 3 * limits.max_step_tokens
    assert done == sum(batch)


def test_interactive_work_goes_before_batch_work() -> None:
    world = promised(ttft_s=1.0, limits=SchedulerLimits(128, 8))
    heap = [request(number, 300, 5, priority=1) for number in range(12)]
    chat = request(50, 100, 5, arrival_s=0.02)
    world.run([*heap, chat])
    assert world.ttft_s(chat) < 0.1
    assert len(world.ended) == 13


def test_batch_streams_are_left_out_where_they_stretch_steps_and_each_goes_on_in_turn() -> None:
    cost = LineCost(step_s=0.005, stream_s=0.002)
    world = promised(ttft_s=1.0, itl_s=0.03, cost=cost, limits=SchedulerLimits(512, 16))
    for number in range(10):
        world.add(request(number, 8, 60, priority=1))
    for _ in range(4):
        world.step()
    world.add(request(50, 8, 40, world.now_s))
    world.step()
    counts = [len(world.tokens[str(number)]) for number in range(10)]
    for _ in range(12):
        note = world.step()
        assert note is not None and note.seconds <= 0.5 * 0.03
        assert any(part.name == "50" for part in note.parts)
    grown = [len(world.tokens[str(number)]) - before for number, before in enumerate(counts)]
    assert min(grown) >= 1 and max(grown) - min(grown) <= 1
    world.run()
    assert len(world.ended) == 11
