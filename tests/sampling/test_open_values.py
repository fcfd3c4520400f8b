"""The sampling values of requests that leave some of them open."""

from __future__ import annotations

from typing import Any

import pytest

from twostroke.types.sampling.open_values import LEAST_SHARE, LIMITS, filled
from twostroke.types.sampling.sampling_params import SamplingParams


def test_rare_tokens_are_left_out_when_nobody_sets_a_limit() -> None:
    assert filled({}, {}) == {"min_p": LEAST_SHARE}
    assert filled({"temperature": 0.7}, {"repetition_penalty": 1.1}) == {
        "temperature": 0.7, "repetition_penalty": 1.1, "min_p": LEAST_SHARE,
    }  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("published", [False, True])
def test_a_limit_of_the_request_or_of_the_publisher_stands_alone(name: str, published: bool) -> None:
    values: dict[str, Any] = {name: getattr(SamplingParams(), name)}
    assert filled(*(({}, values) if published else (values, {}))) == values


def test_the_request_goes_before_the_publisher() -> None:
    assert filled({"top_p": 1.0}, {"top_p": 0.8, "temperature": 0.6}) == {"top_p": 1.0, "temperature": 0.6}
