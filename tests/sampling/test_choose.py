"""The sampler compared with simple definitions, and its independence of everything but its own row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples, fewer
from twostroke.ops.attention.token_weights import weigh
from twostroke.runner.sampling.choose import choose, drawn, largest
from twostroke.runner.sampling.logprobs import token_logprob
from twostroke.runner.sampling.random_draw import WORD, draw, draws, sibling_seed
from twostroke.runner.sampling.sampler import sample
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams


def plain_distribution(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> dict[int, float]:
    """The definition: sort everything, cut by top-k, then top-p, then min-p, and normalise."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    weights = [float(np.exp((float(logits[i]) - float(logits.max())) / temperature)) for i in order]
    if top_k:
        order, weights = order[:top_k], weights[:top_k]
    if top_p < 1.0:
        total, running, keep = sum(weights), 0.0, 0
        for weight in weights:
            running += weight
            keep += 1
            if running >= top_p * total * (1 - 1e-12):
                break
        order, weights = order[:keep], weights[:keep]
    kept = [(i, w) for i, w in zip(order, weights, strict=True) if w >= min_p * weights[0]]
    total = sum(w for _, w in kept)
    return {i: w / total for i, w in kept if w > 0}


@settings(max_examples=examples(150), deadline=None)
@given(
    data=st.integers(0, 2**32 - 1),
    size=st.integers(2, 1500),
    temperature=st.floats(0.05, 2.0),
    top_k=st.sampled_from([0, 0, 1, 3, 50, 700]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.0, 0.05, 0.9]),
    drawn=st.integers(0, 2**53 - 1),
)
def test_a_draw_lands_inside_the_plain_distribution(data, size, temperature, top_k, top_p, min_p, drawn):
    logits = np.random.default_rng(data).normal(0, 3, size).astype(np.float32)
    allowed = plain_distribution(logits, temperature, top_k, top_p, min_p)
    assert choose(weigh, logits, temperature, top_k, top_p, min_p, drawn) in allowed


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.1), (6, 0.9, 0.02)]
)
def test_frequencies_follow_the_plain_distribution(top_k, top_p, min_p):
    logits = np.random.default_rng(1).normal(0, 2, 30).astype(np.float32)
    expected = plain_distribution(logits, 0.8, top_k, top_p, min_p)
    draws = fewer(20_000, quick=5_000)
    counts: dict[int, int] = {}
    for position in range(draws):
        token = choose(weigh, logits, 0.8, top_k, top_p, min_p, draw(7, position))
        counts[token] = counts.get(token, 0) + 1
    assert set(counts) <= set(expected)
    for token, probability in expected.items():
        sigma = (probability * (1 - probability) / draws) ** 0.5
        assert abs(counts.get(token, 0) / draws - probability) < 5 * sigma + 1e-3


def test_a_draw_is_a_function_and_looks_uniform():
    values = np.array([draw(3, position) for position in range(20_000)]) / 2**53
    assert draw(3, 11) == values[11] * 2**53
    assert 0 <= values.min() and values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01 and abs(values.var() - 1 / 12) < 0.005
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.03
    assert len({sibling_seed(5, i) for i in range(100)}) == 100 and sibling_seed(5, 0) == 5


def planned(params: SamplingParams, output: list[int], end: frozenset[int] = frozenset({2})) -> PlannedSequence:
    prompt = (1, 4, 4)
    request = Request("r", "g", prompt, params, 9, 10, end, 0.0)
    return PlannedSequence(request, 0, len(prompt) + len(output), [*prompt, *output], ((0,),), True, Role.PREFILL)


def test_penalties_bias_and_bans_change_the_choice():
    logits = np.array([0.0, 1.0, 3.0, 2.0, 2.9, -1.0], np.float32)
    greedy = SamplingParams(temperature=0)
    assert sample(weigh, logits, planned(greedy, [])).token_id == 2
    assert sample(weigh, logits, planned(SamplingParams(temperature=0, min_tokens=2), [3])).token_id == 4
    assert sample(weigh, logits, planned(SamplingParams(temperature=0, min_tokens=2), [3, 3])).token_id == 2
    assert sample(weigh, logits, planned(SamplingParams(temperature=0, logit_bias={0: 50.0}), [])).token_id == 0
    assert sample(weigh, logits, planned(SamplingParams(temperature=0, presence_penalty=2.0), [2])).token_id == 4
    assert sample(weigh, logits, planned(SamplingParams(temperature=0, frequency_penalty=0.6), [2, 2, 4])).token_id == 4
    repeated = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert sample(weigh, logits, planned(repeated, [2])).token_id == 3
    assert logits.tolist() == [0.0, 1.0, 3.0, 2.0, pytest.approx(2.9), -1.0]


def test_logprobs_are_of_the_raw_distribution():
    logits = np.array([0.5, 1.0, -2.0, 3.0, 3.0], np.float32)
    found = token_logprob(weigh, logits, 1, 3)
    expected = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    assert found.logprob == pytest.approx(expected[1], abs=1e-12)
    assert [token for token, _ in found.top] == [3, 4, 1]
    assert found.top[0][1] == pytest.approx(expected[3], abs=1e-12)


def test_a_row_without_a_finite_logit_is_refused():
    with pytest.raises(ValueError, match="no finite logit"):
        sample(weigh, np.full(4, np.nan, np.float32), planned(SamplingParams(temperature=0), []))


@given(st.lists(st.tuples(st.integers(0, 2**70), st.integers(0, 2**31)), min_size=1, max_size=4))
def test_many_draws_are_those_of_each(pairs: list[tuple[int, int]]) -> None:
    seeds = np.array([seed & WORD for seed, _ in pairs], np.uint64)
    positions = np.array([position for _, position in pairs], np.uint64)
    assert draws(seeds, positions).tolist() == [draw(*pair) for pair in pairs]


@settings(max_examples=examples(200), deadline=None)
@given(
    data=st.integers(0, 2**32 - 1),
    size=st.integers(1, 6000),
    count=st.integers(1, 6000),
    kind=st.sampled_from([np.float32, np.float64]),
)
def test_the_largest_are_those_of_a_stable_sort(data: int, size: int, count: int, kind: type[np.floating]) -> None:
    """Many values are equal, some are -inf, and zeros of both signs are equal."""
    dice = np.random.default_rng(data)
    values = (dice.integers(-4, 5, size) * kind(0.25) * dice.choice([1, -1], size)).astype(kind)
    values[dice.random(size) < 0.1] = -np.inf
    values[dice.random(size) < 0.3] *= kind(1 + 1e-3)
    expected = np.argsort(-values, kind="stable")[:count]
    assert largest(values, min(count, size)).tolist() == expected[: min(count, size)].tolist()


@pytest.mark.parametrize("size", [1, 2, 511, 512, 513, 1024, 5000])
def test_a_draw_by_blocks_is_a_draw_by_all_sums(size: int) -> None:
    dice = np.random.default_rng(size)
    for share_of_zeros in (0.0, 0.5, 0.999):
        weights = dice.integers(0, 1 << 44, size).astype(np.uint64)
        weights[dice.random(size) < share_of_zeros] = 0
        weights[int(dice.integers(size))] = 1 << 44
        sums = np.cumsum(weights)
        for number in (0, 1, (1 << 53) - 1, *dice.integers(0, 1 << 53, 50).tolist()):
            wanted = np.uint64(number * int(sums[-1]) >> 53)
            assert drawn(weights, number) == int(np.searchsorted(sums, wanted, side="right"))
