"""Packs what a device needs to sample tokens from rows of logits, and unpacks what it returns. Each row has one record
of the numpy dtype SAMPLE_INPUT and one of SAMPLE_RESULT.

The layouts are those of csrc/cuda/include/twostroke/cuda/rows/sample_row.h. The token that a device chooses, and its
sum of the weights of all tokens, are those of `sampler.sample`, bit for bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.attention.token_weights import exponent_scale
from twostroke.runner.sampling.changes import Changes
from twostroke.runner.sampling.logprobs import logprob_of
from twostroke.runner.sampling.offer import unchanged
from twostroke.runner.sampling.random_draw import DRAW_BITS, draw
from twostroke.runner.sampling.sampler import refuse
from twostroke.types.plan import PlannedSequence
from twostroke.types.result import SampledToken, TokenLogprob

MOST_TOP = 20
_LIST = ("<i4", (2,))
LISTS = ("seen", "lowered", "raised", "banned", "mask")
SAMPLE_INPUT = np.dtype(
    [
        *((name, "<u8") for name in ("draw", "top_p", "min_p")),
        ("scale", "<f8"),
        *((name, *_LIST) for name in LISTS),
        ("repetition", "<f4"),
        *((name, "<i4") for name in ("changed", "drawn", "top_k", "num_top", "given")),
    ]
)
_PACKED, _PLACES, _LISTS_AT = struct.Struct("<QQQd10if5i"), struct.Struct("<10i"), 32
"""_PACKED is the layout of a record of SAMPLE_INPUT, which one call packs, because there are thousands of records a
second. _PLACES is the layout of its references to lists of tokens, which begin at byte _LISTS_AT."""
NO_LISTS = (0,) * 2 * len(LISTS)
NOT_ASKED = _PACKED.pack(0, 0, 0, 0.0, *NO_LISTS, 0.0, 0, 0, 0, -1, 0)
"""The record in the device's sampling input for a row that the host samples: the device computes no token for this row.
"""
SAMPLE_RESULT = np.dtype(
    [
        *(("total", "<u8"), ("token", "<i4"), ("best", "<f4"), ("raw", "<f4"), ("raw_best", "<f4")),
        *(("top_tokens", "<i4", (MOST_TOP,)), ("top_logits", "<f4", (MOST_TOP,))),
    ]
)
TOKEN_BY = np.dtype([("token", "<i4"), ("by", "<f4")])
Rows = NDArray[Any]


def why_host(sequence: PlannedSequence, changes: Changes | None, vocabulary: int) -> str | None:
    """Returns the reason why a device cannot sample this sequence, so that the host must sample from its logits; None
    where the device can."""
    if (sequence.request.num_top or 0) > MOST_TOP:
        return f"more than {MOST_TOP} likely tokens (beam search)"
    if sequence.request.params.has_chain and not sequence.request.params.greedy:
        return "samplers next to top-k, top-p and min-p"
    if changes is None:
        return None
    if sequence.request.steered:
        return "a beam whose request changes log probabilities"
    allowed = () if changes.allowed is None else changes.allowed
    named = (changes.seen, changes.lowered, changes.raised, changes.banned, allowed)
    if any(len(each) and not (0 <= min(each) and max(each) < vocabulary) for each in named):
        return "a token that the vocabulary does not have"
    return None


def asked_of(sequence: PlannedSequence, changes: Changes | None) -> bytes:
    """Returns one record of SAMPLE_INPUT for a sequence: the draw and the sampling parameters. Its references to lists
    of tokens (penalized, biased, banned, allowed) are empty; `with_lists` fills them in."""
    params, num_top = sequence.request.params, sequence.request.num_top
    is_changed, num_top = changes is not None, -1 if num_top is None else num_top
    if params.greedy:
        return _PACKED.pack(0, 0, 0, 0.0, *NO_LISTS, params.repetition_penalty, is_changed, 0, 0, num_top, 0)
    drawn = draw(sequence.request.seed, sequence.num_output_tokens)
    shares, scale = (_share(params.top_p), _share(params.min_p)), exponent_scale(params.temperature)
    top_k = min(params.top_k, 2**31 - 1)
    return _PACKED.pack(drawn, *shares, scale, *NO_LISTS, params.repetition_penalty, is_changed, 1, top_k, num_top, 0)


def with_lists(row: bytes, where: Sequence[int]) -> bytes:
    """Returns a record of SAMPLE_INPUT with references to its lists of tokens, whose names are in LISTS. where: for
    each list in turn, the byte at which it begins and the number of its entries."""
    return row[:_LISTS_AT] + _PLACES.pack(*where) + row[_LISTS_AT + _PLACES.size :]


def scores_of(token_ids: Sequence[int], num_top: int) -> Rows:
    """Returns the device's sampling input for rows whose next token is known, as in prompts. The device then returns
    each token's log probability and the `num_top` most likely tokens."""
    rows = np.zeros(len(token_ids), SAMPLE_INPUT)
    rows["num_top"], rows["given"] = num_top, np.array(token_ids) + 1
    return rows


def lists_of(changes: Changes, vocabulary: int) -> list[Rows]:
    """Returns the arrays by which a request changes the logits, in the order of LISTS: tokens under the repetition
    penalty, lowered, raised and banned tokens, mask of allowed tokens."""
    raised = np.empty(len(changes.raised), TOKEN_BY)
    raised["token"], raised["by"] = list(changes.raised), list(changes.raised.values())
    lowered = np.empty(len(changes.lowered), TOKEN_BY)
    lowered["token"], lowered["by"] = changes.lowered, changes.lowered_by
    banned = np.array(changes.banned, np.int32)
    return [changes.seen.astype(np.int32), lowered, raised, banned, _mask(changes, vocabulary)]


def _mask(changes: Changes, vocabulary: int) -> Rows:
    """Returns the mask of possible tokens, (ceil(V / 32),) of 32 bits each; it is empty where all tokens are possible.
    """
    if changes.bits is None and changes.allowed is None:
        return np.empty(0, np.uint32)
    mask = np.zeros(-(-vocabulary // 32) * 4, np.uint8)
    if changes.bits is not None:
        bits = np.frombuffer(changes.bits, np.uint8)[: len(mask)]
        mask[: len(bits)] = bits
    elif changes.allowed is not None:
        possible = np.zeros(8 * len(mask), bool)
        possible[changes.allowed] = True
        mask[:] = np.packbits(possible, bitorder="little")
    return mask.view(np.uint32)


def token_of(found: Any, sequence: PlannedSequence, is_changed: bool, vocabulary: int) -> SampledToken:
    """Returns the token that a device sampled for a sequence's row. found: one record of SAMPLE_RESULT. Raises as
    `sample` does."""
    if not math.isfinite(found["best"]):
        refuse(sequence, is_changed, float(found["raw_best"]))
    token_id, num_top = int(found["token"]), sequence.request.num_top
    if num_top is None:
        return SampledToken(token_id)
    logprob = scored(found, num_top, vocabulary)
    return SampledToken(token_id, logprob, unchanged(logprob) if sequence.request.steered else ())


def scored(found: Any, num_top: int, vocabulary: int) -> TokenLogprob:
    """Returns the log probability of a row's token, as `token_logprob` makes it. The row's largest logit must be
    finite."""
    num_top = min(num_top, vocabulary)
    top = _in_order(found["top_tokens"][:num_top].tolist(), found["top_logits"][:num_top].tolist())
    return logprob_of(float(found["raw_best"]), int(found["total"]), int(found["token"]), float(found["raw"]), top)


def _in_order(tokens: Sequence[int], logits: Sequence[float]) -> list[tuple[int, float]]:
    return sorted(zip(tokens, logits, strict=True), key=lambda pair: (-pair[1], pair[0]))


def _share(share: float) -> int:
    return int(share * (1 << DRAW_BITS))
