"""Turns the words of a request's parameters into the token ids that an engine takes."""

from __future__ import annotations

from twostroke.text.bad_words import without_words
from twostroke.text.dry_breakers import with_breakers
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.sampling.sampling_params import SamplingParams


def in_tokens(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """Returns the parameters with bad words and breakers as token ids. Raises InvalidRequest."""
    return with_breakers(without_words(params, tokenizer.encode_rendered), tokenizer)
