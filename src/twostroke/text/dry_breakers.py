"""Turns the texts at which a repetition stops (DRY) into token ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol
from weakref import WeakKeyDictionary

from twostroke.types.sampling.sampling_params import SamplingParams

KEPT = 8
"""The number of sets of texts whose ids are kept for each vocabulary: clients send the same few sets."""


class Pieces(Protocol):
    """The part of a tokenizer that this module needs."""

    vocab_size: int

    def rows_bytes(self, num_rows: int) -> list[bytes]:
        """Returns the bytes of the first `num_rows` tokens."""

    def encode_rendered(self, text: str) -> list[int]:
        """Returns the token ids of a text, in which the texts of special tokens become these tokens."""


_known: WeakKeyDictionary[Pieces, dict[tuple[str, ...], frozenset[int]]] = WeakKeyDictionary()


def with_breakers(params: SamplingParams, tokenizer: Pieces) -> SamplingParams:
    """Returns the parameters with their breakers as token ids, where DRY is on."""
    texts = params.dry_sequence_breakers
    if not params.repeats_cost or params.dry_breaker_ids or not texts:
        return params
    known = _known.setdefault(tokenizer, {})
    if texts not in known:
        if len(known) >= KEPT:
            known.clear()
        known[texts] = breaker_ids(texts, tokenizer)
    return replace(params, dry_breaker_ids=known[texts])


def breaker_ids(texts: Iterable[str], tokenizer: Pieces) -> frozenset[int]:
    """Returns the ids of the tokens that end a repetition, for the DRY penalty: every token that contains one of the
    texts. A text that no single token contains is tokenized, and its last token is taken."""
    pieces, found = tokenizer.rows_bytes(tokenizer.vocab_size), set[int]()
    for text in texts:
        wanted = text.encode("utf-8", errors="replace")
        holding = {token_id for token_id, piece in enumerate(pieces) if wanted in piece}
        found |= holding or set(tokenizer.encode_rendered(text)[-1:])
    return frozenset(found)
