"""Bad words as token sequences: vLLM's rule, with tokenizers of several kinds."""

from __future__ import annotations

import pytest

from tests.text.kinds import make
from twostroke.text.bad_words import bad_sequences, without_words
from twostroke.types.errors import InvalidRequest
from twostroke.types.sampling.sampling_params import SamplingParams


def encoder(table: dict[str, list[int]]):
    return lambda text: table[text]


@pytest.mark.parametrize(
    ("table", "made"),
    [
        ({"bad": [7], " bad": [8]}, ((7,), (8,))),
        ({"bad": [7], " bad": [9, 7]}, ((7,),)),  # the space is a token of its own, so the word alone is enough
        ({"bad": [7, 1], " bad": [8, 1]}, ((7, 1), (8, 1))),
        ({"bad": [7, 1], " bad": [7, 2]}, ((7, 1),)),
        ({"bad": [7], " bad": [7]}, ((7,),)),
    ],
)
def test_with_and_without_a_space_in_front(table: dict[str, list[int]], made: object) -> None:
    assert bad_sequences(["bad"], encoder(table)) == made
    assert bad_sequences(["  bad"], encoder(table)) == made


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_a_real_tokenizer(kind: str) -> None:
    tokenizer = make(kind)
    made = bad_sequences([" token", "the"], tokenizer.encode_rendered)
    assert tuple(tokenizer.encode_rendered("token")) == made[0]
    for sequence in made:
        assert tokenizer.decode(list(sequence)).strip() in ("token", "the")


def test_a_word_without_tokens_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no tokens") as caught:
        bad_sequences(["x"], lambda _: [])
    assert caught.value.param == "bad_words"
    with pytest.raises(InvalidRequest) as caught:
        bad_sequences(["\ud800"], make("byte_level").encode_rendered)
    assert caught.value.param == "bad_words"


def test_parameters_get_sequences_in_place_of_words() -> None:
    params = SamplingParams(bad_words=["bad"], bad_token_ids=[[3]], allowed_token_ids=[3, 4], temperature=0.3)
    made = without_words(params, encoder({"bad": [7], " bad": [8]}))
    assert (made.bad_words, made.bad_token_ids, made.temperature) == ((), ((3,), (7,), (8,)), 0.3)
    assert made.allowed_ids_i32 == params.allowed_ids_i32 != b""
    plain = SamplingParams()
    assert without_words(plain, encoder({})) is plain
