"""One row of logits to one token, as the request's parameters say.

Knows: sampling parameters, the tokens so far.
Must not know: other rows, the scheduler, the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.token_weights import Weigh
from twostroke.sampling.adjust import (
    add_bias,
    bad_ends,
    ban,
    keep_allowed,
    keep_only,
    penalize_output,
    penalize_repetition,
)
from twostroke.sampling.choose import choose
from twostroke.sampling.logprobs import token_logprob
from twostroke.sampling.random_draw import draw
from twostroke.types.forbidden_tokens import NoTokenLeft
from twostroke.types.grammar import TokenMask
from twostroke.types.plan import PlannedSequence
from twostroke.types.result import SampledToken
from twostroke.types.sampling_params import SamplingParams


def sample(weigh: Weigh, logits: F32Array, sequence: PlannedSequence) -> SampledToken:
    """logits (V,) float32, raw, not changed. weigh: makes whole-number weights of them.

    Raises NoTokenLeft where the request itself forbids every token, ValueError where the model gave none, or where
    the request's mask has failed.
    """
    params = sequence.request.params
    adjusted = _adjusted(logits, sequence)
    token_id = int(np.argmax(adjusted))
    if not np.isfinite(adjusted[token_id]):
        if adjusted is not logits and _forbids(params) and np.isfinite(logits.max()):
            raise NoTokenLeft("every token is forbidden by the request")
        raise ValueError("the model gave no finite logit for this request")
    if not params.greedy:
        drawn = draw(sequence.request.seed, sequence.num_output_tokens)
        token_id = choose(weigh, adjusted, params.temperature, params.top_k, params.top_p, params.min_p, drawn)
    num_top = sequence.request.num_top
    logprob = None if num_top is None else token_logprob(weigh, logits, token_id, num_top)
    return SampledToken(token_id, logprob)


def _adjusted(logits: F32Array, sequence: PlannedSequence) -> F32Array:
    """The row after penalties, bias and bans; the row itself where none applies."""
    params, request = sequence.request.params, sequence.request
    num_output = sequence.num_output_tokens
    banned = set(request.end_token_ids) | set(params.stop_token_ids) if num_output < params.min_tokens else set()
    counted = bool(params.presence_penalty or params.frequency_penalty) and num_output > 0
    changed = counted or params.logit_bias or banned or request.mask is not None or _forbids(params)
    if params.repetition_penalty == 1.0 and not changed:
        return logits
    row = logits.copy()
    known = sequence.known_token_ids
    if params.repetition_penalty != 1.0:
        penalize_repetition(row, _window(known, params.repetition_window), params.repetition_penalty)
    if counted:
        output = known[len(request.prompt_token_ids) :]
        penalize_output(row, output, params.presence_penalty, params.frequency_penalty)
    add_bias(row, params.logit_bias)
    if params.allowed_token_ids is not None:
        keep_only(row, np.frombuffer(params.allowed_ids_i32, np.int32))
    if params.bad_token_ids:
        banned |= bad_ends(params.bad_token_ids, known, num_output)
    ban(row, banned)
    if request.mask is not None:
        keep_allowed(row, _bits(request.mask, num_output))
    return row


def _forbids(params: SamplingParams) -> bool:
    """True where the request names tokens that it does not want."""
    return params.allowed_token_ids is not None or bool(params.bad_token_ids)


def _window(known_token_ids: Sequence[int], size: int | None) -> Sequence[int]:
    if size is None:
        return known_token_ids
    return known_token_ids[max(0, len(known_token_ids) - size) :]


def _bits(mask: TokenMask, num_output: int) -> bytes:
    """What may come after this many output tokens; the machine has taken in exactly these, or something is broken."""
    if mask.num_tokens != num_output:
        raise ValueError(f"the grammar is at token {mask.num_tokens}, the output at {num_output}")
    return mask.bits()
