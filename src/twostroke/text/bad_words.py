"""Turns the words that an answer must not hold into sequences of token ids; the rule is vLLM's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from twostroke.types.errors import InvalidRequest
from twostroke.types.sampling.sampling_params import SamplingParams

Encode = Callable[[str], list[int]]


def bad_sequences(words: Iterable[str], encode: Encode) -> tuple[tuple[int, ...], ...]:
    """Returns the token ids of each word. A word is also taken with a space in front, if that gives the same number of
    tokens and another first token.

    encode: encodes a text without special tokens around it. Raises InvalidRequest with param "bad_words".
    """
    made: list[tuple[int, ...]] = []
    for word in words:
        plain, spaced = (_ids(text, encode) for text in (word.lstrip(), " " + word.lstrip()))
        if not plain:
            raise InvalidRequest(f"The bad word {word[:60]!r} has no tokens.", param="bad_words")
        made.append(plain)
        if len(spaced) == len(plain) and spaced[0] != plain[0]:
            made.append(spaced)
    return tuple(made)


def without_words(params: SamplingParams, encode: Encode) -> SamplingParams:
    """Returns the parameters with their bad words as token ids. Raises InvalidRequest."""
    if not params.bad_words:
        return params
    ids = (*params.bad_token_ids, *bad_sequences(params.bad_words, encode))
    return replace(params, bad_words=(), bad_token_ids=ids)


def _ids(text: str, encode: Encode) -> tuple[int, ...]:
    try:
        return tuple(encode(text))
    except InvalidRequest as error:
        error.param = "bad_words"
        raise
