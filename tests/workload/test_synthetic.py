"""Workloads from a seed: repeatable, with the requested rate, and with the sharing and bursts of their names."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.lab.workload.arrivals import evenly, gamma_bursts, on_off, poisson
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.lengths import Lengths
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.synthetic import BATCH, INTERACTIVE, NAMED, Load, bursts, closed_loop, open_loop, overload

PROMPT, OUTPUT = Lengths(100, 0.5, 10, 300), Lengths(20)


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in zip(times, times[1:], strict=False)]


def variation(values: list[float]) -> float:
    """The squared coefficient of variation."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values) / mean**2


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_draws_have_their_moments(shape: float) -> None:
    draws = Draws(7, "moments")
    found = [draws.gamma(shape, 2.0) for _ in range(20_000)]
    assert sum(found) / len(found) == pytest.approx(2.0, rel=0.05)
    assert variation(found) == pytest.approx(1 / shape, rel=0.12)
    normals = [draws.normal() for _ in range(20_000)]
    assert sum(normals) / len(normals) == pytest.approx(0, abs=0.03)
    assert sum(x * x for x in normals) / len(normals) == pytest.approx(1, rel=0.05)
    counts = [0] * 5
    for _ in range(5000):
        counts[draws.below(5)] += 1
    assert min(counts) > 850


def test_streams_of_one_seed_differ_and_repeat() -> None:
    assert [Draws(1, "a").uniform() for _ in range(3)] == [Draws(1, "a").uniform()] * 3
    assert len({Draws(seed, name).uniform() for seed in (1, 2) for name in ("", "a", "b", "ab")}) == 8


@pytest.mark.parametrize(
    ("times", "spread"),
    [
        (evenly(5.0, 8000), 0.0),
        (poisson(5.0, 8000, Draws(3)), 1.0),
        (gamma_bursts(5.0, 8000, Draws(3)), 4.0),
    ],
)
def test_arrivals_have_the_rate_and_the_spread(times: list[float], spread: float) -> None:
    assert len(times) / times[-1] == pytest.approx(5.0, rel=0.1)
    assert times == sorted(times)
    assert variation(gaps(times)) == pytest.approx(spread, rel=0.2, abs=1e-9)


def test_nothing_arrives_while_off() -> None:
    times = on_off(5.0, 4000, Draws(3), 2.0, 6.0)
    assert all(math.fmod(time_s, 8.0) < 2.0 for time_s in times)
    assert len(times) / times[-1] == pytest.approx(5.0, rel=0.1)


def test_loops() -> None:
    assert {request.arrival_s for request in closed_loop(20, PROMPT, OUTPUT)} == {0.0}
    slow, fast = open_loop(1.0, 50, PROMPT, OUTPUT, 4), open_loop(10.0, 50, PROMPT, OUTPUT, 4)
    assert [r.prompt_tokens for r in slow] == [r.prompt_tokens for r in fast]
    assert slow[-1].arrival_s == pytest.approx(10 * fast[-1].arrival_s)
    assert {request.output_tokens for request in bursts(1.0, 50, PROMPT, OUTPUT)} == {20}
    assert all(10 <= request.prompt_tokens <= 300 for request in slow)
    assert Lengths(1000, 0.0, 10, 2000).scaled(0.1) == Lengths(100, 0.0, 1, 200)


@given(st.sampled_from(sorted(NAMED)), st.integers(1, 80), st.integers(0, 2**64), st.floats(0.05, 2.0))
@settings(max_examples=examples(60), deadline=None)
def test_named_workloads_are_whole(name: str, count: int, seed: int, tokens: float) -> None:
    load = Load(3.0, count, seed, tokens)
    made = NAMED[name](load)
    assert made == NAMED[name](load) and len(made) == count
    assert [r.arrival_s for r in made] == sorted(r.arrival_s for r in made)
    for request in made:
        assert request.arrival_s >= 0 and request.prompt_tokens >= 1 and request.output_tokens >= 1
        assert not request.block_ids or len(request.block_ids) == -(-request.prompt_tokens // request.block_tokens)


def shared_blocks(one: WorkloadRequest, other: WorkloadRequest) -> int:
    count = 0
    for a, b in zip(one.block_ids, other.block_ids, strict=False):
        if a != b:
            break
        count += 1
    return count


def test_agents_share_system_prompts_and_repeat_their_history() -> None:
    made = NAMED["shared-prefix-agents"](Load(5.0, 120, 2))
    system = 1024 // 16
    best = [max((shared_blocks(r, other) for other in made[:at]), default=0) for at, r in enumerate(made)]
    assert sum(1 for found in best if found >= system) > 100, "all but the first of each kind share a system prompt"
    assert sum(1 for found in best if found > system) > 80, "later turns repeat their session"
    for request, found in zip(made, best, strict=True):
        assert found * 16 <= request.prompt_tokens


def test_named_workloads_differ_as_their_names_say() -> None:
    mixed = NAMED["mixed-batch-interactive"](Load(3.0, 90, 1))
    assert sum(r.priority == BATCH for r in mixed) == 30 and sum(r.priority == INTERACTIVE for r in mixed) == 60
    documents = NAMED["long-document-bursts"](Load(3.0, 80, 1))
    assert sum(r.prompt_tokens >= 1000 for r in documents) >= 10
    times = [r.arrival_s for r in overload(Load(3.0, 300, 1))]
    assert times[200] - times[100] < 0.5 * (times[100] - times[0])
