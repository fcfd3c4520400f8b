"""Penalties, bias, bans and masks: the changes to the logits before a token is chosen.

Each function works on one row in place and depends on that row's own request alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array


def penalize_repetition(logits: F32Array, seen: NDArray[np.int64], penalty: float) -> None:
    """Makes tokens of the prompt or output less likely (Keskar et al. 2019). logits: (V,). seen: these tokens."""
    values = logits[seen]
    logits[seen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))


def lower(logits: F32Array, token_ids: NDArray[np.int64], by: F32Array) -> None:
    """Subtracts `by` from the logits (V,) of these tokens. No token occurs twice."""
    logits[token_ids] -= by


def add_bias(logits: F32Array, bias: Mapping[int, float]) -> None:
    """Adds a bias to logits (V,). bias: the number for each token id."""
    for token_id, value in bias.items():
        logits[token_id] += np.float32(value)


def keep_allowed(logits: F32Array, bits: bytes) -> None:
    """Sets logits (V,) to -inf for every token whose bit is 0. bits: a bit for each token, the lowest bit of a byte
    first; there may be more than V bits."""
    allowed = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(logits), bitorder="little")
    np.copyto(logits, -np.inf, where=allowed == 0)


def keep_only(logits: F32Array, token_ids: NDArray[np.int32]) -> None:
    """Sets logits (V,) to -inf for all tokens but these."""
    kept = logits[token_ids]
    logits.fill(-np.inf)
    logits[token_ids] = kept


def bad_ends(sequences: Sequence[Sequence[int]], known_token_ids: Sequence[int], num_output: int) -> set[int]:
    """Returns the tokens that would complete one of the forbidden sequences if they came next. The other tokens of the
    sequence must be output tokens: the last `num_output` of the known tokens."""
    found = set[int]()
    for sequence in sequences:
        behind = len(sequence) - 1
        if behind <= num_output and (not behind or list(known_token_ids[-behind:]) == list(sequence[:-1])):
            found.add(sequence[-1])
    return found


def ban(logits: F32Array, token_ids: Collection[int]) -> None:
    """Sets logits (V,) to -inf for these tokens."""
    logits[list(token_ids)] = -np.inf
