"""A request that cannot be served is refused with an error that contains the limit. No other request is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from twostroke.engine.limits import EngineLimits
from twostroke.types.errors import ContextLengthExceeded, InvalidRequest
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

LIMITS = EngineLimits(context_tokens=100, vocab_size=50, pool_tokens=200, end_token_ids=frozenset({1}))
SMALL_POOL = EngineLimits(context_tokens=100, vocab_size=50, pool_tokens=64, end_token_ids=frozenset())


def prompt(length: int, **params: object) -> Prompt:
    return Prompt((3,) * length, SamplingParams(**params))  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "asked", "given"), [(1, None, 99), (99, None, 1), (40, 60, 60), (40, 5, 5)])
def test_what_fits(length: int, asked: int | None, given: int) -> None:
    assert LIMITS.check(prompt(length, max_tokens=asked)) == given


@pytest.mark.parametrize(
    ("length", "asked", "figures"),
    [(100, None, "100 tokens.*100 in all"), (140, 1, "140 tokens"), (41, 60, "41.*60.*101.*100")],
)
def test_too_long_for_the_context(length: int, asked: int | None, figures: str) -> None:
    with pytest.raises(ContextLengthExceeded, match=figures) as caught:
        LIMITS.check(prompt(length, max_tokens=asked))
    assert caught.value.code == "context_length_exceeded"


def test_the_pool_bounds_what_is_left_open() -> None:
    assert SMALL_POOL.check(prompt(60)) == 4
    with pytest.raises(ContextLengthExceeded, match="KV memory.*64") as caught:
        SMALL_POOL.check(prompt(64))
    assert (caught.value.prompt_tokens, caught.value.most_tokens) == (64, 64)
    with pytest.raises(InvalidRequest, match="70 tokens of KV memory"):
        SMALL_POOL.check(prompt(60, max_tokens=10))


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (Prompt((), SamplingParams()), "prompt"),
        (Prompt((50,), SamplingParams()), "prompt"),
        (Prompt((-1,), SamplingParams()), "prompt"),
        (Prompt((1,), SamplingParams(logit_bias={50: 1.0})), "logit_bias"),
        (Prompt((1,), SamplingParams(stop_token_ids=(50,))), "stop_token_ids"),
        (Prompt((1,), SamplingParams(stop_token_ids=(-2,))), "stop_token_ids"),
        (Prompt((1,), SamplingParams(min_tokens=100)), "min_tokens"),
    ],
)
def test_wrong_fields_are_named(wrong: Prompt, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        LIMITS.check(wrong)
    assert caught.value.param == param


def test_one_request_may_ask_for_less_haste_and_not_for_more() -> None:
    kept = structs.replace(LIMITS, objectives=LatencyObjectives(1.0, 0.05))
    asked = replace(prompt(5), objectives=LatencyObjectives(2.0, None))
    assert kept.check(asked) > 0
    for wrong, name in ((LatencyObjectives(0.5), "ttft_s"), (LatencyObjectives(None, 4000.0), "itl_s")):
        with pytest.raises(InvalidRequest) as caught:
            kept.check(replace(asked, objectives=wrong))
        assert caught.value.param == name
    with pytest.raises(InvalidRequest, match="keeps no such objective"):
        LIMITS.check(asked)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"allowed_token_ids": (50,)}, "allowed_token_ids"),
        ({"bad_token_ids": ((1,), (2, 50))}, "bad_token_ids"),
        ({"bad_words": ["word"]}, "bad_words"),
    ],
)
def test_forbidden_tokens_are_of_the_vocabulary_and_words_are_made_into_tokens(params: dict, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        LIMITS.check(prompt(5, **params))
    assert caught.value.param == param
    assert LIMITS.check(prompt(5, allowed_token_ids=(0, 49), bad_token_ids=((1,), (2, 49)), max_tokens=3)) == 3
