"""The changes of a request to its logits before a token is chosen: penalties, bias and bans, as lists of tokens.

They are made once for each row. `Changes.changed` or a device (runner/device/rows.py) applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.adjust import (
    add_bias,
    bad_ends,
    ban,
    keep_allowed,
    keep_only,
    lower,
    penalize_repetition,
)
from twostroke.runner.sampling.samplers.dry import Dry
from twostroke.types.grammar import TokenMask
from twostroke.types.plan import PlannedSequence
from twostroke.types.sampling.sampling_params import SamplingParams

IdArray = NDArray[np.int64]


class Changes(Struct, frozen=True):
    """The changes of one request to one row of logits, in the order in which they are applied. seen: tokens that
    `repetition` makes less likely. lowered: tokens whose logits are lowered by `lowered_by`. raised: the number that is
    added to the logit of each token. allowed: the only tokens that may be sampled; None for all. banned: tokens that
    are never sampled. bits: a bit for each token, 1 where a grammar allows it, lowest bit of a byte first; None allows
    all."""

    seen: IdArray
    repetition: float
    lowered: IdArray
    lowered_by: F32Array
    raised: Mapping[int, float]
    allowed: NDArray[np.int32] | None
    banned: tuple[int, ...]
    bits: bytes | None

    def changed(self, logits: F32Array) -> F32Array:
        """Returns a copy of logits (V,) with the changes. Raises IndexError for a token that the vocabulary does not
        have."""
        row = logits.copy()
        penalize_repetition(row, self.seen, self.repetition)
        lower(row, self.lowered, self.lowered_by)
        add_bias(row, self.raised)
        if self.allowed is not None:
            keep_only(row, self.allowed)
        ban(row, self.banned)
        if self.bits is not None:
            keep_allowed(row, self.bits)
        return row


def changes_of(sequence: PlannedSequence) -> Changes | None:
    """Returns the changes that this sequence's request makes to the next logits, such as penalties and bans; None where
    it makes none. Raises ValueError where its grammar has failed."""
    params, request = sequence.request.params, sequence.request
    num_output = sequence.num_output_tokens
    banned = set(request.end_token_ids) | set(params.stop_token_ids) if num_output < params.min_tokens else set()
    counted = bool(params.presence_penalty or params.frequency_penalty) and num_output > 0
    changed = counted or params.logit_bias or banned or request.mask is not None or forbids(params)
    if params.repetition_penalty == 1.0 and not changed and not params.repeats_cost:
        return None
    known = sequence.known_token_ids
    if params.bad_token_ids:
        banned |= bad_ends(params.bad_token_ids, known, num_output)
    lowered, by = _lowered(known[len(request.prompt_token_ids) :] if counted else (), params)
    dry = Dry.of(params)
    if dry is not None:
        lowered, by = _both(lowered, by, *dry.lowered_in(sequence))
    window = _window(known, params.repetition_window) if params.repetition_penalty != 1.0 else ()
    return Changes(
        np.unique(np.asarray(window, np.int64)),
        params.repetition_penalty,
        lowered,
        by,
        params.logit_bias,
        None if params.allowed_token_ids is None else np.frombuffer(params.allowed_ids_i32, np.int32),
        tuple(banned),
        None if request.mask is None else _bits(request.mask, num_output),
    )


def forbids(params: SamplingParams) -> bool:
    """Returns whether the request names tokens that it does not want."""
    return params.allowed_token_ids is not None or bool(params.bad_token_ids)


def _lowered(output: Sequence[int], params: SamplingParams) -> tuple[IdArray, F32Array]:
    """Returns each token of the output, and the number that the presence and frequency penalties subtract from its
    logit."""
    seen, counts = np.unique(np.asarray(output, np.int64), return_counts=True)
    by = np.float32(params.presence_penalty) + np.float32(params.frequency_penalty) * counts.astype(np.float32)
    return seen, by


def _both(ids: IdArray, by: F32Array, more_ids: IdArray, more_by: F32Array) -> tuple[IdArray, F32Array]:
    """Joins two lists of tokens to one list in which no token occurs twice. For a token of both lists, its two numbers
    are added."""
    joined = np.union1d(ids, more_ids)
    total = np.zeros(len(joined), np.float32)
    total[np.searchsorted(joined, ids)] += by
    total[np.searchsorted(joined, more_ids)] += more_by
    return joined, total


def _window(known_token_ids: Sequence[int], size: int | None) -> Sequence[int]:
    if size is None:
        return known_token_ids
    return known_token_ids[max(0, len(known_token_ids) - size) :]


def _bits(mask: TokenMask, num_output: int) -> bytes:
    """Returns which tokens the grammar allows after `num_output` output tokens. Raises ValueError where the grammar has
    taken in another number of tokens, which is a fault."""
    if mask.num_tokens != num_output:
        raise ValueError(f"the grammar is at token {mask.num_tokens}, the output at {num_output}")
    return mask.bits()
