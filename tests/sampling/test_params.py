"""SamplingParams as callers write them: exact values are taken, and all others give one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twostroke.types.errors import InvalidRequest
from twostroke.types.sampling.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("asked", "name", "kept"),
    [
        ({"stop": "abc"}, "stop", ("abc",)),
        ({"stop": ["a", "b"]}, "stop", ("a", "b")),
        ({"stop": None}, "stop", ()),
        ({"stop_token_ids": [np.int64(3), 4]}, "stop_token_ids", (3, 4)),
        ({"top_k": -1}, "top_k", 0),
        ({"max_tokens": np.int32(5)}, "max_tokens", 5),
        ({"seed": None}, "seed", None),
        ({"temperature": 1}, "temperature", 1.0),
        ({"temperature": np.float32(0.5)}, "temperature", 0.5),
        ({"logit_bias": {np.int64(7): 1}}, "logit_bias", {7: 1.0}),
    ],
)
def test_values_are_made_exact(asked: dict[str, Any], name: str, kept: Any) -> None:
    found = getattr(SamplingParams(**asked), name)
    assert found == kept and type(found) in (type(kept), int)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *((name, 5.0, "a whole number") for name in ("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs")),
        ("max_tokens", 2.5, "a whole number"),
        ("max_tokens", "5", "a whole number"),
        ("max_tokens", True, "a whole number"),
        ("logprobs", True, "a whole number"),
        ("prompt_logprobs", False, "a whole number"),
        ("n", None, "a whole number"),
        ("temperature", "0.5", "a number"),
        ("temperature", True, "a number"),
        ("top_p", None, "a number"),
        ("ignore_eos", 1, "True or False"),
        ("stop", b"abc", "a text or a list of texts"),
        ("stop", 3, "a text or a list of texts"),
        ("stop", ["a", 3], "a text or a list of texts"),
        ("stop_token_ids", "12", "a list of whole numbers"),
        ("stop_token_ids", 7, "a list of whole numbers"),
        ("stop_token_ids", [1.0], "a whole number"),
        ("logit_bias", [1], "a mapping"),
        ("logit_bias", {"50": 1.0}, "a whole number"),
        ("logit_bias", {50: "1"}, "a number"),
        ("top_k", -2, "at least"),
        ("grammar", {"type": "object"}, "a Grammar"),
    ],
)
def test_what_has_no_exact_meaning_is_refused_by_name(name: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name and name in caught.value.what
