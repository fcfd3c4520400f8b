"""Simulated guesses: the production limiter takes those that pay, and the engine becomes faster by the saved steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.speculate.costs import RowCost, arithmetic_bound, memory_bound
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.speculate.proposer import GuessWanted
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.guessing import AgreeingProposer
from twostroke.lab.sim.predicted import PredictedExecutor, invented_tokens
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams


def request(index: int, tokens: int) -> Request:
    return Request(str(index), str(index), (1, 2, 3), SamplingParams(), index, tokens, frozenset(), 0.0)


def decoded(setup: ReplicaSetup, streams: int, tokens: int) -> tuple[float, list[int]]:
    """The seconds until all of these streams have ended, and the tokens of the first."""
    _, scheduler = setup.heart()
    clock = VirtualClock()
    executor = PredictedExecutor(setup.cost, clock)
    for index in range(streams):
        scheduler.add(request(index, tokens))
    made: list[int] = []
    while (plan := scheduler.schedule(clock())) is not None:
        for event in scheduler.commit(plan, executor.execute(plan), clock()):
            if isinstance(event, TokenEvent) and event.request_id == "0":
                made.append(event.token_id)
            assert not isinstance(event, FinishedEvent) or event.error is None
    return clock(), made


def setup_of(cost: RowCost, acceptance: float) -> ReplicaSetup:
    return ReplicaSetup(cost, 1000, SchedulerLimits(), 4096, 1, acceptance=acceptance)  # type: ignore[arg-type]


def test_a_proposer_is_right_as_often_as_its_workload_says() -> None:
    asked = request(5, 4000)
    known = list(asked.prompt_token_ids)
    (guess,) = AgreeingProposer(0.7).propose([GuessWanted(asked, known, 4000)])
    right = sum(a == b for a, b in zip(guess.token_ids, invented_tokens(asked, 0, 4000), strict=True))
    assert right == pytest.approx(2800, abs=100)
    assert AgreeingProposer(0.7).propose([GuessWanted(asked, known, 4000)]) == [guess]


@pytest.mark.parametrize(("acceptance", "least", "most"), [(0.5, 1.4, 2.0), (0.7, 1.9, 3.0), (0.95, 3.5, 8.0)])
def test_one_stream_is_as_much_faster_as_the_rate_allows(acceptance: float, least: float, most: float) -> None:
    """Rows cost a hundredth of a step each, and there are up to seven of them."""
    plain = setup_of(RowCost(memory_bound), 0.0)
    plain_s, tokens = decoded(plain, 1, 400)
    guessed_s, guessed = decoded(replace(plain, acceptance=acceptance), 1, 400)
    assert guessed == tokens
    assert least < plain_s / guessed_s < most


@pytest.mark.parametrize(("cost", "streams"), [(arithmetic_bound, 1), (arithmetic_bound, 16), (memory_bound, 32)])
def test_where_rows_are_dear_nothing_is_lost(cost: object, streams: int) -> None:
    plain = setup_of(RowCost(cost), 0.0)  # type: ignore[arg-type]
    plain_s, _ = decoded(plain, streams, 100)
    guessed_s, _ = decoded(replace(plain, acceptance=0.5), streams, 100)
    assert guessed_s <= 1.02 * plain_s
