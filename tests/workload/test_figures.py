"""Figures of observations, by hand for one request and as properties for many, compared with other tools'
definitions."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twostroke.lab.workload.definitions import other_tools
from twostroke.lab.workload.figures import figures
from twostroke.lab.workload.figures_text import figures_text
from twostroke.lab.workload.objectives import Objectives, met
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.summary import counted_percentile, percentile, summary, weighted_summary

# Intended at 1, sent at 1.5, and ended at 8. Chunks came at 2 (no text), at 3 (text), at 4 (two tokens), at 6 (one
# token) and at 7 (the closing chunk).
ONE = Observation(1.0, 1.5, 8.0, (2.0, 3.0, 4.0, 6.0, 7.0), (0, 1, 2, 1, 0), 100, 4)
SINGLE = Observation(0.0, 0.0, 2.0, (1.0,), (), 5, 1)
FAILED = Observation(0.0, 0.1, 0.2, status=429, error="429 too many")


def test_one_request_by_hand() -> None:
    assert (ONE.ttft_s, ONE.e2e_s, ONE.tokens) == (2.0, 5.0, 4)
    assert ONE.tpot_s == pytest.approx(1.0) and ONE.gaps_s == [1.0, 0.0, 2.0]
    assert (SINGLE.ttft_s, SINGLE.tpot_s, SINGLE.gaps_s) == (1.0, None, [])
    assert (FAILED.ttft_s, FAILED.e2e_s, FAILED.tokens, FAILED.whole) == (None, None, 0, False)


def test_the_figures_of_three() -> None:
    found = figures([ONE, SINGLE, FAILED], Objectives(ttft_s=2.0, tpot_s=1.5))
    assert (found.requests, found.completed, found.errors) == (3, 2, {"429 too many": 1})
    assert found.duration_s == 8.0 and found.requests_per_s == 0.25
    assert (found.prompt_tokens, found.output_tokens, found.output_tokens_per_s) == (105, 5, 0.625)
    assert found.ttft and found.ttft.mean == 1.5 and found.itl and found.itl.count == 3
    assert found.send_late and found.send_late.high == 0.5
    assert (found.good, found.goodput_per_s) == (1, 0.125), "a one-token request has no TPOT and is not good"
    assert found.busy_most == 2 and found.busy_mean == pytest.approx((6.5 + 2 + 0.1) / 8)
    assert json.loads(json.dumps(found.as_json()))["ttft"]["p50"] == 1.5
    printed = figures_text(found, other_tools([ONE, SINGLE, FAILED], Objectives(ttft_s=2.0, tpot_s=1.5)))
    for words in (
        "2 of 3 requests",
        "1 failed: 429 too many",
        "goodput 0.12",
        "guidellm",
        "vllm bench serve",
        "aiperf",
    ):
        assert words in printed


def test_other_tools_differ_where_their_definitions_do() -> None:
    vllm, aiperf, guidellm = (
        {each.name: each.value for each in tool.figures} for tool in other_tools([ONE], Objectives())
    )
    assert vllm["TTFT"] and vllm["TTFT"].mean == 0.5, "the chunk without text counts, from the actual send"
    assert vllm["ITL"] and (vllm["ITL"].count, vllm["ITL"].mean) == (4, 1.25)
    assert vllm["TPOT"] and vllm["TPOT"].mean == pytest.approx(5 / 3)
    assert vllm["E2EL"] and vllm["E2EL"].mean == 5.5
    assert aiperf["TTFT"] and aiperf["TTFT"].mean == 1.5
    assert aiperf["ITL"] and aiperf["ITL"].mean == pytest.approx(4 / 3)
    assert aiperf["ICL"] and aiperf["ICL"].mean == 1.5
    assert guidellm["ITL"] and guidellm["ITL"].mean == pytest.approx(1.0)
    assert guidellm["TPOT"] and guidellm["TPOT"].mean == pytest.approx(4.5 / 4)
    assert guidellm["request latency"] and guidellm["request latency"].mean == 6.5


def test_goodput_of_a_one_token_request_in_each_tool() -> None:
    wanted = Objectives(tpot_s=1.0)
    assert [tool.goodput_per_s for tool in other_tools([SINGLE], wanted)] == [0.5, 0.0, 0.0]
    assert figures([SINGLE], wanted).goodput_per_s == 0.0
    assert [tool.goodput_per_s for tool in other_tools([SINGLE], Objectives())] == [None] * 3


@pytest.mark.parametrize(
    ("wanted", "good"),
    [
        (Objectives(), True),
        (Objectives(ttft_s=1.9), False),
        (Objectives(itl_s=1.9), True),
        (Objectives(itl_s=1.85), False),
        (Objectives(e2e_s=5.0), True),
        (Objectives(ttft_s=2.0, e2e_s=4.9), False),
    ],
)
def test_objectives(wanted: Objectives, good: bool) -> None:
    assert met(ONE, wanted) is good
    assert not met(FAILED, wanted)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_summaries_are_in_order(values: list[float]) -> None:
    found = summary(values)
    assert found is not None
    row = [found.low, found.p50, found.p90, found.p95, found.p99, found.high]
    assert all(a <= b + 1e-6 for a, b in zip(row, row[1:], strict=False))
    assert found.low - 1e-6 <= found.mean <= found.high + 1e-6
    same = weighted_summary([(value, 1.0) for value in values])
    assert same is not None and (same.count, same.low, same.high) == (found.count, found.low, found.high)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1), st.sampled_from((0.0, 0.5, 0.95, 1.0)))
def test_counted_values_have_the_percentiles_of_all_of_them(counted: list[tuple[int, int]], share: float) -> None:
    every = sorted(value for value, count in counted for _ in range(count))
    if every:
        assert counted_percentile(counted, share) == pytest.approx(percentile(every, share))


def test_percentiles_are_those_of_numpy() -> None:
    import numpy as np

    values = sorted([5.0, 1.0, 9.0, 2.0, 2.0, 7.0])
    for share in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        assert percentile(values, share) == pytest.approx(float(np.percentile(values, 100 * share)))
    assert weighted_summary([(1.0, 99.0), (2.0, 1.0), (3.0, 0.0)]) == weighted_summary([(1.0, 99.0), (2.0, 1.0)])
    assert summary([]) is None and weighted_summary([(1.0, 0.0)]) is None


arrival_lists = st.lists(st.floats(0.0, 5.0), max_size=20).map(sorted)


@example([(0.0, 2.3e-311, [])])  # so short that a rate would be infinite
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1), arrival_lists), max_size=12))
def test_every_run_adds_up(drawn: list[tuple[float, float, list[float]]]) -> None:
    seen = []
    for intended, late, offsets in drawn:
        times = tuple(intended + late + offset for offset in offsets)
        end = times[-1] if times else intended + late
        seen.append(Observation(intended, intended + late, end, times, (), 3, len(times)))
    found = figures(seen, Objectives(ttft_s=1.0))
    assert found.completed == len(seen) and found.output_tokens == sum(len(each.times_s) for each in seen)
    assert (found.itl.count if found.itl else 0) == sum(max(0, len(each.times_s) - 1) for each in seen)
    assert found.busy_most <= len(seen) and found.busy_mean <= found.busy_most + 1e-6
    for each in seen:
        if each.tpot_s is not None:
            assert (each.e2e_s or 0) == pytest.approx((each.ttft_s or 0) + each.tpot_s * (each.tokens - 1))
    assert figures_text(found, other_tools(seen))
