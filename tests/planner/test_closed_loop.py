"""The plan's ITL is the objective's: 95% of a request's own gaps. It is compared with the engine in virtual time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from tests.cost.virtual import COST, Lab, text
from twostroke.cost.shape import Segment, StepPrediction
from twostroke.engine.scheduler.limits.chunk_sizer import KEPT_SHARE, MIN_CHUNK_TOKENS
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.closed_loop import Load, closed_loop, decoding, prompt_steps_s
from twostroke.lab.workload import objectives
from twostroke.lab.workload.summary import percentile
from twostroke.types.objectives import ITL_SHARE

STEP_TOKENS = 256


def ask(prompt: int, output: int, streams: int, itl_s: float | None = None) -> Ask:
    return Ask("int8", "bf16", prompt, output, streams, itl_s=itl_s)


class DeviceCost:
    """COST without the part of the host, because the clock of the lab adds that part itself."""

    def predict(self, segments: Sequence[Segment]) -> StepPrediction:
        found = COST.predict(segments)
        return replace(found, parts=tuple(part for part in found.parts if part.name != "host"))


def load(asked: Ask) -> Load:
    return closed_loop(asked, COST, STEP_TOKENS, asked.concurrency)


def engine_itl_s(asked: Ask) -> float:
    """The median of requests' 95th percentiles, for an engine whose users each ask again after each answer."""
    lab, dice, numbers = Lab(4096, STEP_TOKENS, asked.concurrency), random.Random(1), iter(range(1, 10**6))

    def submit() -> None:
        number, output = next(numbers), round(asked.output_tokens * dice.uniform(0.8, 1.2))
        lab.submit(f"r{number}", text(number, asked.prompt_tokens), output)

    for _ in range(asked.concurrency):
        lab.at(dice.uniform(0, asked.output_tokens * COST.predict(decoding(asked, asked.concurrency)).seconds), submit)
    ended = 0
    while ended < 8 * asked.concurrency:
        while lab._actions and (lab._actions[0][0] <= lab.clock.now or not lab.stepper.has_work):
            lab.clock.now = max(lab.clock.now, lab._actions[0][0])
            lab._actions.pop(0)[2]()
        ends = sum(delta.finish_reason is not None for delta in lab.stepper.step() or [])
        ended += ends
        for _ in range(ends):
            submit()
    at_s: dict[str, list[float]] = defaultdict(list)
    for record in lab.ledger.history.records():
        for each in record.sequences:
            if each.segment.samples:
                at_s[each.request_id].append(record.end_s)
    whole = [each for each in at_s.values() if len(each) >= 0.8 * asked.output_tokens][asked.concurrency :]
    return median(percentile(sorted(b - a for a, b in zip(each, each[1:], strict=False)), ITL_SHARE) for each in whole)


@pytest.mark.parametrize(
    ("asked", "stretched"),
    [(ask(128, 240, 1), False), (ask(128, 240, 4), False), (ask(240, 60, 8), True), (ask(900, 100, 4), True)],
)
def test_the_engine_in_virtual_time_has_the_planned_itl(asked: Ask, stretched: bool) -> None:
    cost = DeviceCost()
    found = closed_loop(asked, cost, STEP_TOKENS, asked.concurrency)
    plain_s = cost.predict(decoding(asked, asked.concurrency)).seconds
    assert (found.prefill_gap_share > 1 - ITL_SHARE) == stretched == (found.itl_s > 1.2 * plain_s)
    assert engine_itl_s(asked) == pytest.approx(found.itl_s, rel=0.15)


def test_one_gap_in_twenty_may_hold_a_chunk() -> None:
    """Among 100 gaps, 4 with a chunk do not change the ITL, and 6 decide it. The mean changes with each."""
    few, many = load(ask(128, 101, 5)), load(ask(128, 101, 7))
    assert few.prefill_gap_share == 0.04 and many.prefill_gap_share == 0.06
    assert few.itl_s == COST.predict(decoding(ask(128, 101, 5), 5)).seconds < few.mean_itl_s
    assert many.itl_s == many.longest_gap_s > 1.2 * many.mean_itl_s


def test_an_objective_sizes_chunks_as_the_engine_does() -> None:
    free = ask(2048, 64, 4)
    wide_s = prompt_steps_s(free, COST, STEP_TOKENS, 3)
    least = [*decoding(free, 3), Segment.prefill(2048 - MIN_CHUNK_TOKENS, MIN_CHUNK_TOKENS, True)]
    wanted_s = 1.2 * COST.predict(least).seconds
    narrow_s = prompt_steps_s(replace(free, itl_s=wanted_s), COST, STEP_TOKENS, 3)
    assert max(narrow_s) <= KEPT_SHARE * wanted_s and len(narrow_s) > len(wide_s)
    assert load(replace(free, itl_s=wanted_s)).itl_s <= wanted_s < load(free).itl_s
    hopeless_s = prompt_steps_s(replace(free, itl_s=1e-6), COST, STEP_TOKENS, 3)
    assert len(hopeless_s) == 2048 // MIN_CHUNK_TOKENS
    assert prompt_steps_s(replace(free, itl_s=1e-6), COST, STEP_TOKENS, 0) == prompt_steps_s(free, COST, STEP_TOKENS, 0)


def test_there_is_one_definition() -> None:
    assert objectives.ITL_SHARE is ITL_SHARE == 0.95
