"""Tokens that a request forbids: allowed_token_ids, bad_token_ids, and the window of the repetition penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling.test_choose import planned
from tests.tiers import examples
from twostroke.ops.attention.token_weights import weigh
from twostroke.runner.sampling.adjust import bad_ends
from twostroke.runner.sampling.sampler import sample
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar
from twostroke.types.sampling.forbidden_tokens import NoTokenLeft
from twostroke.types.sampling.sampling_params import SamplingParams

LOGITS = np.array([0.0, 1.0, 3.0, 2.0, 2.9, -1.0], np.float32)
ALLOWED_ALONE = SamplingParams(temperature=0, allowed_token_ids=(4,))


def best(output: list[int], **fields: Any) -> int:
    return sample(weigh, LOGITS, planned(SamplingParams(temperature=0, **fields), output)).token_id


def test_only_allowed_tokens_are_chosen_end_tokens_too() -> None:
    assert best([]) == 2  # the end token
    assert best([], allowed_token_ids=(5, 0, 5)) == 0
    drawn = SamplingParams(temperature=2.0, allowed_token_ids=[1, 5], top_k=3, top_p=0.99)
    seen = {sample(weigh, LOGITS, planned(drawn, [1] * place)).token_id for place in range(60)}
    assert seen == {1, 5}
    assert LOGITS.tolist() == [0.0, 1.0, 3.0, 2.0, pytest.approx(2.9), -1.0]


def test_log_probabilities_stay_the_models_own() -> None:
    params = SamplingParams(temperature=0, allowed_token_ids=(5,), bad_token_ids=((2,),), logprobs=1)
    plain = SamplingParams(temperature=0, logprobs=1)
    found, free = (sample(weigh, LOGITS, planned(each, [])).logprob for each in (params, plain))
    assert found is not None and free is not None
    assert found.token_id == 5 and found.top == free.top


@pytest.mark.parametrize(
    ("output", "sequences", "chosen"),
    [
        ([], ((2,),), 4),
        ([], ((2,), (4,)), 3),
        ([], ((1, 2),), 2),  # nothing stands before it yet
        ([1], ((1, 2),), 4),
        ([1, 3], ((1, 2),), 2),
        ([3, 1], ((3, 1, 2), (4,)), 3),
        ([1], ((4, 1, 2),), 2),  # the prompt ends with 4, and is no part of the output
    ],
)
def test_no_bad_sequence_is_completed(output: list[int], sequences: Any, chosen: int) -> None:
    assert best(output, bad_token_ids=sequences) == chosen


@settings(max_examples=examples(200), deadline=None)
@given(
    sequences=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=4),
    output=st.lists(st.integers(0, 3), max_size=5),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_what_is_banned_is_what_would_complete_a_sequence(
    sequences: list[list[int]], output: list[int], prompt: list[int]
) -> None:
    def completes(token: int) -> bool:
        longer = [*output, token]
        return any(longer[-len(sequence) :] == sequence for sequence in sequences)

    assert bad_ends(sequences, [*prompt, *output], len(output)) == {token for token in range(4) if completes(token)}


def test_a_request_that_forbids_every_token_says_so() -> None:
    with pytest.raises(NoTokenLeft):
        best([], allowed_token_ids=(4,), bad_token_ids=((4,),))
    with pytest.raises(ValueError, match="no finite logit"):
        sample(weigh, np.full(6, np.nan, np.float32), planned(ALLOWED_ALONE, []))


def test_the_repetition_penalty_looks_at_its_window_alone() -> None:
    """The prompt is 1, 4, 4."""
    assert best([], repetition_penalty=9.0, logit_bias={2: -5}) == 3
    assert best([0], repetition_penalty=9.0, repetition_window=1, logit_bias={2: -5}) == 4
    assert best([0], repetition_penalty=9.0, repetition_window=2, logit_bias={2: -5}) == 3
    assert best([2], repetition_penalty=9.0, repetition_window=0) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"allowed_token_ids": ()}, "allowed_token_ids"),
        ({"allowed_token_ids": (-1,)}, "allowed_token_ids"),
        ({"allowed_token_ids": (2**31,)}, "allowed_token_ids"),
        ({"allowed_token_ids": (1.5,)}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": ["  "]}, "bad_words"),
        ({"bad_words": ["x" * 257]}, "bad_words"),
        ({"bad_words": ["x"] * 1025}, "bad_words"),
        ({"bad_words": [5]}, "bad_words"),
        ({"bad_token_ids": ((),)}, "bad_token_ids"),
        ({"bad_token_ids": (1,)}, "bad_token_ids"),
        ({"bad_token_ids": "12"}, "bad_token_ids"),
        ({"repetition_window": -1}, "repetition_window"),
        ({"bad_words": ["x"], "grammar": Grammar.regex("a")}, "bad_words"),
        ({"allowed_token_ids": (1,), "grammar": Grammar.regex("a")}, "allowed_token_ids"),
    ],
)
def test_wrong_values_are_refused(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**fields)
    assert caught.value.param == param


def test_one_word_is_one_word() -> None:
    assert SamplingParams(bad_words="abc").bad_words == ("abc",)  # type: ignore[arg-type]
