"""Where guessing does not pay, most steps ask no proposer. A stream that joins is asked for at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.scheduler.fakes import LineCost, World, request
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.drafts import LONGEST_PAUSE_STEPS, STREAMS_A_STEP
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.speculate.guess_limiter import StepShape
from twostroke.engine.speculate.guesser import Guesses, Stream
from twostroke.types.request import Request


class Resting:
    """Satisfies Drafter. It guesses nothing and lets each stream rest for this many tokens. asked: for each step, the
    streams by request id, with the lengths of their texts."""

    def __init__(self, rests: Mapping[str, int]) -> None:
        self.rests, self.asleep = rests, dict[str, int]()
        self.asked: list[dict[str, int]] = []
        self.observed = 0

    def guess(self, streams: Sequence[Stream], shape: StepShape) -> dict[str, Guesses]:
        self.asked.append({each.request.request_id: len(each.known) for each in streams})
        for each in streams:
            self.asleep[each.request.request_id] = len(each.known) + 1 + self.rests[each.request.request_id]
        return {}

    def observe(self, accepted: Mapping[str, int], measured_s: float) -> None:
        self.observed += 1

    def ended(self, request: Request, known: Sequence[int]) -> None:
        self.asleep.pop(request.request_id, None)

    def lengths(self, request_id: str) -> list[int]:
        """The length of its text at each time when guesses were asked for."""
        return [each[request_id] for each in self.asked if request_id in each]


def world_of(drafter: Resting) -> World:
    world = World(None, SchedulerLimits(256, 64, max_draft_tokens=32), LineCost())
    world.cache = CacheManager(4000, 4)
    world.scheduler = Scheduler(world.cache, world.limits, None, drafter)
    return world


def test_a_resting_stream_is_asked_for_when_its_rest_is_over_and_not_before() -> None:
    drafter = Resting({"1": 10})
    world_of(drafter).run([request(1, 8, 60)])
    assert drafter.lengths("1") == [9, 20, 31, 42, 53, 64]
    assert len(drafter.asked) == 6, "the steps between ask nobody"


def test_a_long_rest_is_broken_to_learn_what_steps_take() -> None:
    drafter = Resting({"1": 10_000})
    world_of(drafter).run([request(1, 8, 4 * LONGEST_PAUSE_STEPS + 2)])
    assert drafter.lengths("1") == [9]
    assert drafter.asked[1:] == [{}] * 4 and drafter.observed == 5


def test_a_stream_that_joins_is_asked_for_at_its_first_step() -> None:
    drafter = Resting({"1": 30, "2": 30})
    world_of(drafter).run([request(1, 8, 60), request(2, 8, 60, arrival_s=0.1)])
    assert drafter.lengths("2")[0] == 9


def test_a_stream_that_takes_another_ones_place_is_asked_for_at_its_first_step() -> None:
    drafter = Resting({"1": 1000, "2": 1000})
    world = world_of(drafter).run([request(1, 8, 4)])
    world.run([request(2, 8, 4)])
    assert drafter.lengths("2") == [9]


def test_many_streams_are_asked_for_together() -> None:
    streams, tokens = 32, 200
    drafter = Resting({str(index): 7 + index % 5 for index in range(streams)})
    world_of(drafter).run([request(index, 8, tokens) for index in range(streams)])
    assert len(drafter.asked) < 2 * tokens / (7 + streams // STREAMS_A_STEP)
    assert all(
        len(drafter.lengths(str(index))) >= tokens // (12 + 1 + streams // STREAMS_A_STEP) for index in range(streams)
    )
