"""Each sampler compared with its published definition in simple NumPy, and with itself in batches, guesses and
resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples, fewer
from twostroke.ops.attention.token_weights import weigh
from twostroke.runner.sampling.chain import chosen, links_of
from twostroke.runner.sampling.choose import choose
from twostroke.runner.sampling.random_draw import coin, draw
from twostroke.runner.sampling.row import SamplerRow
from twostroke.runner.sampling.sampler import sample
from twostroke.runner.sampling.samplers.adaptive_p import AdaptiveP
from twostroke.runner.sampling.samplers.dry import Dry
from twostroke.runner.sampling.samplers.dynamic_temperature import DynamicTemperature
from twostroke.runner.sampling.samplers.mirostat import Mirostat, ZipfMirostat
from twostroke.runner.sampling.samplers.top_n_sigma import TopNSigma
from twostroke.runner.sampling.samplers.typical import Typical
from twostroke.runner.sampling.samplers.xtc import Xtc
from twostroke.runner.sampling.verify import sample_rows
from twostroke.types.errors import InvalidRequest
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams

ROWS = fewer(10_000, quick=500)
NEAR = 1e-4
"""In nats: two tokens that are nearer than this are a tie for a definition in 64-bit numbers."""


def random_logits(dice: np.random.Generator) -> np.ndarray:
    """Rows of all kinds: flat and steep, short and long, some with forbidden tokens."""
    size = int(dice.choice([2, 3, 10, 100, 700]))
    logits = dice.normal(0, dice.choice([0.05, 1.0, 4.0, 15.0]), size).astype(np.float32)
    if dice.random() < 0.2:
        logits[dice.random(size) < 0.3] = -np.inf
    logits[int(dice.integers(size))] = logits[np.isfinite(logits)].max(initial=0.0) + np.float32(dice.random())
    return logits


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    raised = np.exp((logits.astype(np.float64) - float(logits.max())) / temperature)
    return raised / raised.sum()


def row_of(logits: np.ndarray, seed: int = 1, position: int = 0, memory: tuple[float, ...] = ()) -> SamplerRow:
    return SamplerRow(weigh, logits, seed, position, memory)


def test_typical_keeps_the_tokens_nearest_to_the_entropy() -> None:
    dice = np.random.default_rng(1)
    for _ in range(ROWS):
        logits, mass = random_logits(dice), float(dice.choice([0.05, 0.2, 0.5, 0.9, 0.99]))
        row = row_of(logits)
        Typical(mass).apply(row)
        p = softmax(logits)
        with np.errstate(divide="ignore", invalid="ignore"):
            surprise = -np.log(p)
            entropy = np.where(p > 0, p * surprise, 0.0).sum()
            shift = np.abs(surprise - entropy)
        order = np.argsort(shift, kind="stable")
        sums = np.cumsum(p[order])
        counts = [min(int((sums <= bound).sum()), len(p) - 1) for bound in (mass - 1e-6, mass + 1e-6)]
        least, most = shift[order[counts[0]]], shift[order[counts[1]]]
        kept = np.isin(np.arange(len(p)), row.ids)
        likely = p > 1e-12
        assert kept[likely & (shift < least - NEAR)].all() and not kept[likely & (shift > most + NEAR)].any()


def test_top_n_sigma_keeps_what_is_near_the_largest_logit() -> None:
    dice = np.random.default_rng(2)
    for _ in range(ROWS):
        logits, count = random_logits(dice), float(dice.choice([0.3, 1.0, 1.5, 3.0]))
        row = row_of(logits)
        TopNSigma(count).apply(row)
        finite = logits[np.isfinite(logits)].astype(np.float64)
        least = finite.max() - count * finite.std()
        kept = np.isin(np.arange(len(logits)), row.ids)
        assert kept[logits > least + NEAR].all() and not kept[logits < least - NEAR].any()


def test_dynamic_temperature_follows_the_entropy() -> None:
    dice = np.random.default_rng(3)
    for _ in range(ROWS):
        logits, apart = random_logits(dice), float(dice.choice([0.2, 0.8, 2.0]))
        exponent, base = float(dice.choice([0.0, 0.5, 1.0, 2.5])), float(dice.choice([0.5, 1.0]))
        row = row_of(logits)
        DynamicTemperature(max(0.0, base - apart), base + apart, exponent).apply(row)
        p = softmax(logits[np.isfinite(logits)])
        if len(p) < 2:
            continue
        entropy = -sum(float(x) * float(np.log(x)) for x in p if x > 1e-14)
        share = max(0.0, entropy) / np.log(len(p))
        least = max(0.0, base - apart)
        assert row.temperature == pytest.approx(least + (base + apart - least) * share**exponent, abs=2e-3)
        assert row.weights.max() == 1 << 44


def test_xtc_leaves_out_all_likely_tokens_but_one() -> None:
    dice = np.random.default_rng(4)
    acted = 0
    for place in range(ROWS):
        logits, threshold = random_logits(dice), float(dice.choice([0.05, 0.1, 0.3, 0.6]))
        link = Xtc.of(SamplingParams(xtc_probability=0.5, xtc_threshold=threshold))
        row = row_of(logits, 9, place)
        if link is not None:
            link.apply(row)
        p = softmax(logits)
        likely = [int(i) for i in sorted(range(len(p)), key=lambda i: (-p[i], i)) if p[i] >= threshold]
        acts = coin(9, place) / 2**53 < 0.5 and threshold <= 0.5 and len(likely) >= 2
        dropped = set(likely[:-1]) if acts else set()
        assert set(row.ids.tolist()) == {i for i in range(len(p)) if np.isfinite(logits[i])} - dropped
        acted += acts
    assert acted > ROWS / 50


def test_coins_are_even_and_do_not_follow_the_draws() -> None:
    coins = np.array([coin(3, place) for place in range(5_000)]) / 2**53
    draws = np.array([draw(3, place) for place in range(5_000)]) / 2**53
    assert abs(coins.mean() - 0.5) < 0.02 and abs(np.corrcoef(coins, draws)[0, 1]) < 0.05


def published_dry(tokens: Sequence[int], breakers: set[int], last: int) -> dict[int, int]:
    """The definition by its author: every earlier place of the last token, extended backwards."""
    tokens = tokens[len(tokens) - (len(tokens) if last < 0 else min(last, len(tokens))) :]
    found: dict[int, int] = {}
    if not tokens or tokens[-1] in breakers:
        return found
    for place in range(len(tokens) - 1):
        if tokens[place] != tokens[-1] or tokens[place + 1] in breakers:
            continue
        length = 1
        while place - length >= 0:
            if tokens[place - length] != tokens[-1 - length] or tokens[-1 - length] in breakers:
                break
            length += 1
        found[tokens[place + 1]] = max(found.get(tokens[place + 1], 0), length)
    return found


@settings(max_examples=examples(300), deadline=None)
@given(
    tokens=st.lists(st.integers(0, 4), max_size=60),
    breakers=st.sets(st.integers(0, 4), max_size=2),
    last=st.sampled_from([-1, 2, 5, 64]),
    allowed=st.integers(0, 4),
    base=st.sampled_from([1.0, 1.75, 3.0]),
)
def test_dry_is_the_published_penalty(
    tokens: list[int], breakers: set[int], last: int, allowed: int, base: float
) -> None:
    params = SamplingParams(
        dry_multiplier=0.8, dry_base=base, dry_allowed_length=allowed, dry_penalty_last_n=last, dry_breaker_ids=breakers
    )
    link = Dry.of(params)
    assert link is not None and link.repetitions(tokens) == published_dry(tokens, breakers, last)
    ids, by = link.lowered(tokens)
    expected = {
        token: 0.8 * base ** (length - allowed)
        for token, length in published_dry(tokens, breakers, last).items()
        if length >= allowed
    }
    assert dict(zip(ids.tolist(), by.tolist(), strict=True)) == pytest.approx(expected, rel=1e-6)


def test_a_long_repetition_has_a_finite_penalty() -> None:
    link = Dry.of(SamplingParams(dry_multiplier=5.0, dry_base=2.0, dry_penalty_last_n=-1))
    assert link is not None
    _, by = link.lowered([1] * 3000)
    assert np.isfinite(by).all() and by.max() > 1e30


def test_mirostat_holds_surprises_below_a_limit_that_moves() -> None:
    dice = np.random.default_rng(5)
    link = Mirostat(3.0, 0.3)
    for _ in range(fewer(200, quick=20)):
        memory: tuple[float, ...] = ()
        limit = 6.0
        for position in range(20):
            logits = random_logits(dice)
            row = row_of(logits, 4, position, memory)
            link.apply(row)
            p = softmax(logits)
            kept = np.isin(np.arange(len(p)), row.ids)
            with np.errstate(divide="ignore"):
                surprise = -np.log2(p)
            assert kept[surprise < limit - NEAR].all() and int(p.argmax()) in row.ids
            assert not np.delete(kept, int(p.argmax()))[np.delete(surprise, int(p.argmax())) > limit + NEAR].any()
            place = row.draw()
            memory = link.remember(row, place)
            left = p[row.ids] / p[row.ids].sum()
            limit -= 0.3 * (-float(np.log2(left[place])) - 3.0)
            assert memory == pytest.approx((limit,), abs=1e-6)
            limit = memory[0]


def test_mirostat_1_keeps_as_many_as_zipfs_law_says() -> None:
    """The number is compared with llama.cpp's formula in doubles. It may differ by one where the formula gives almost a
    whole number."""
    dice, near = np.random.default_rng(15), 0
    for _ in range(fewer(300, quick=30)):
        logits = random_logits(dice)
        limit = float(dice.uniform(-1, 9))
        row = row_of(logits, 4, 1, (limit,))
        size, vocabulary = len(row), len(logits)
        ZipfMirostat(3.0, 0.3).apply(row)
        if size < 2:
            continue
        p = np.sort(softmax(logits)[np.isfinite(logits)])[::-1][:100]
        p = np.maximum(p, p[0] * 2.0**-60)  # a smaller probability has no weight
        t = np.log((np.arange(len(p) - 1) + 2) / (np.arange(len(p) - 1) + 1))
        s = float((t * np.log(p[:-1] / p[1:])).sum() / (t * t).sum())
        excess = s - 1
        k = (excess * 2**limit / (1 - vocabulary**-excess)) ** (1 / s)
        near += abs(k - round(k)) < 1e-3
        low, high = (max(1, min(size, int(k + off))) for off in (-1e-3, 1e-3))
        assert low <= len(row) <= high
        best = np.sort(np.argsort(-logits, kind="stable")[: len(row)])
        assert row.ids.tolist() == best.tolist()
        place = row.draw()
        left = softmax(logits[row.ids])
        (memory,) = ZipfMirostat(3.0, 0.3).remember(row, place)
        assert memory == pytest.approx(limit - 0.3 * (-float(np.log2(left[place])) - 3.0), abs=1e-6)
    assert near < 30


@pytest.mark.parametrize("logits", [[0.0], [0.0, 0.0], [0.0] * 40, [50.0, -50.0, -50.0], [0.0, -np.inf, 0.0]])
@pytest.mark.parametrize("limit", [-50.0, 0.0, 3.0, 500.0])
def test_mirostat_1_of_rows_without_a_slope(logits: list[float], limit: float) -> None:
    row = row_of(np.array(logits, np.float32), 4, 1, (limit,))
    ZipfMirostat(3.0, 0.3).apply(row)
    assert 1 <= len(row) <= np.isfinite(logits).sum()
    assert np.isfinite(ZipfMirostat(3.0, 0.3).remember(row, row.draw())).all()


def test_adaptive_p_prefers_tokens_near_the_target() -> None:
    dice = np.random.default_rng(6)
    link = AdaptiveP(0.4, 0.8)
    for _ in range(fewer(200, quick=20)):
        memory: tuple[float, ...] = ()
        total, count = 0.4 / 0.2, 1 / 0.2
        for position in range(20):
            logits = random_logits(dice)
            row = row_of(logits, 4, position, memory)
            link.apply(row)
            p = softmax(logits[np.isfinite(logits)])
            aim = min(1.0, max(0.0, 0.8 - total / count))
            apart = np.abs(p - aim) / 0.3
            assert row.logits == pytest.approx(5.0 - 10.0 * apart * apart / (1.0 + apart), abs=1e-4)
            place = row.draw()
            memory = link.remember(row, place)
            total, count = float(p[place]) + 0.8 * total, 1.0 + 0.8 * count
            assert memory == pytest.approx((total, count), abs=1e-6)


@settings(max_examples=examples(150), deadline=None)
@given(
    data=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 600]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.1, 0.6]),
)
def test_the_chain_without_others_chooses_as_without_a_chain(
    data: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = random_logits(np.random.default_rng(data))
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert not params.has_chain
    sequence = planned(params, [3, 4])
    expected = choose(weigh, logits, temperature, top_k, top_p, min_p, draw(sequence.request.seed, 2))
    assert chosen(weigh, logits, sequence) == (expected, ())
    assert sample(weigh, logits, sequence).token_id == expected


def planned(
    params: SamplingParams, output: Sequence[int], guesses: tuple[int, ...] = (), memory: tuple[float, ...] = ()
) -> PlannedSequence:
    prompt = (1, 4, 4)
    request = Request("r", "g", prompt, params, 9, 99, frozenset({2}), 0.0)
    known = [*prompt, *output]
    first = PlannedSequence(request, 0, len(known), known, ((0,),), True, Role.DECODE, memory=memory)
    return first._replace(draft_token_ids=guesses)


ALL: list[dict[str, Any]] = [
    {"typical_p": 0.7},
    {"top_n_sigma": 1.2},
    {"dynatemp_range": 0.6, "dynatemp_exponent": 1.5},
    {"xtc_probability": 0.6, "xtc_threshold": 0.05},
    {"dry_multiplier": 0.8, "dry_allowed_length": 1, "dry_penalty_last_n": -1},
    {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.5},
    {"mirostat": 1, "mirostat_tau": 2.0, "mirostat_eta": 0.5},
    {"adaptive_target": 0.3, "adaptive_decay": 0.7, "min_p": 0.02},
    {"samplers": ["dry", "top_k", "min_p", "xtc", "temperature"], "top_k": 9, "min_p": 0.1, "temperature": 1.4},
    {"typical_p": 0.8, "top_n_sigma": 2.0, "xtc_probability": 0.5, "dry_multiplier": 1.0, "top_p": 0.9, "top_k": 20},
]


@pytest.mark.parametrize("fields", ALL, ids=lambda fields: "+".join(fields))
@pytest.mark.parametrize("right", [0, 2, 5])
def test_guesses_give_the_tokens_of_single_steps(fields: dict[str, Any], right: int) -> None:
    """Rows that are sampled together give the tokens that they give one by one, with the memory of the samplers."""
    params, dice = SamplingParams(**fields), np.random.default_rng(7)
    for _ in range(fewer(40, quick=8)):
        rows = dice.normal(0, 2, (6, 50)).astype(np.float32)
        single, memory = list[int](), ()
        for row in rows:
            made = sample(weigh, row, planned(params, single, memory=memory))
            single, memory = [*single, made.token_id], made.memory
            if made.token_id == 2:
                break
        guesses = (*single[:right], *[49 if token != 49 else 48 for token in single[right:]])[:5]
        together = sample_rows(weigh, rows, planned(params, [], guesses))
        assert [each.token_id for each in together] == single[: len(together)]
        assert len(together) >= min(right + 1, len(single))
        assert (together[-1].memory != ()) == params.remembers


@pytest.mark.parametrize("fields", ALL, ids=lambda fields: "+".join(fields))
def test_a_sampler_changes_some_answer(fields: dict[str, Any]) -> None:
    """This shows that no option is accepted and then ignored."""
    dice, usual = np.random.default_rng(8), SamplingParams(temperature=fields.get("temperature", 1.0))
    asked, output = SamplingParams(**fields), [5, 6, 5, 6, 5]
    rows = dice.normal(0, 2, (400, 30)).astype(np.float32)
    rows[:, 6] += 3
    told = {params: [sample(weigh, row, planned(asked if params else usual, output)).token_id for row in rows]
            for params in (False, True)}  # fmt: skip
    assert told[False] != told[True]


def test_the_order_of_a_request_is_kept() -> None:
    order = ["top_k", "temperature", "min_p"]
    links = links_of(SamplingParams(samplers=order, top_k=3, min_p=0.1, top_p=0.5, temperature=0.5))
    assert [type(link).__name__ for link in links] == ["TopK", "Temperature", "MinP"]
    params = SamplingParams(samplers=["typical_p", "temp"], typical_p=0.5, repetition_penalty=1.5, dry_multiplier=1.0)
    assert params.samplers == ("typ_p", "temperature")
    assert (params.repetition_penalty, params.dry_multiplier) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"typical_p": 1.5}, "typical_p"),
        ({"typical_p": "x"}, "typical_p"),
        ({"top_n_sigma": -2}, "top_n_sigma"),
        ({"dynatemp_range": -0.1}, "dynatemp_range"),
        ({"dynatemp_exponent": float("nan")}, "dynatemp_exponent"),
        ({"xtc_probability": 2}, "xtc_probability"),
        ({"xtc_threshold": -1}, "xtc_threshold"),
        ({"dry_multiplier": -1}, "dry_multiplier"),
        ({"dry_base": 0.5}, "dry_base"),
        ({"dry_allowed_length": 1.5}, "dry_allowed_length"),
        ({"dry_penalty_last_n": -2}, "dry_penalty_last_n"),
        ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers"),
        ({"dry_sequence_breakers": ["x"] * 65}, "dry_sequence_breakers"),
        ({"mirostat": 3}, "mirostat"),
        ({"mirostat_tau": -1}, "mirostat_tau"),
        ({"mirostat_eta": 2}, "mirostat_eta"),
        ({"adaptive_target": 1.5}, "adaptive_target"),
        ({"adaptive_decay": 1.0}, "adaptive_decay"),
        ({"mirostat": 2, "adaptive_target": 0.5}, "adaptive_target"),
        ({"samplers": ["nonsense"]}, "samplers"),
        ({"samplers": ["top_k", "top_k"]}, "samplers"),
        ({"samplers": ["top_k", "dry"]}, "samplers"),
        ({"samplers": ["adaptive_p", "top_k"], "adaptive_target": 0.5}, "samplers"),
        ({"samplers": ["top_k"], "mirostat": 2}, "samplers"),
        ({"typical_p": 0.5, "use_beam_search": True, "best_of": 2}, "typical_p"),
        ({"mirostat": 2, "use_beam_search": True, "best_of": 2}, "mirostat"),
        ({"adaptive_target": 0.5, "use_beam_search": True, "best_of": 2}, "adaptive_target"),
    ],
)
def test_wrong_values_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**fields)
    assert caught.value.param == param


def test_values_that_are_off_change_nothing() -> None:
    off = {"typical_p": 1, "top_n_sigma": -1, "dynatemp_range": 0, "xtc_probability": 0, "dry_multiplier": 0}
    params = SamplingParams(**off, mirostat=0, adaptive_target=-1)
    assert not params.has_chain and not params.repeats_cost
    assert replace(params, typical_p=0.5).has_chain


def test_greedy_answers_need_no_chain() -> None:
    logits = np.array([0.0, 3.0, 1.0, 2.0, -5.0], np.float32)
    for fields in ALL:
        params = SamplingParams(**{**fields, "temperature": 0, "samplers": None})
        assert sample(weigh, logits, planned(params, [])).token_id == 1
