"""Samples one token from one row of logits, by the request's parameters."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from twostroke.ops.attention.token_weights import Weigh
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.chain import chosen
from twostroke.runner.sampling.changes import changes_of, forbids
from twostroke.runner.sampling.choose import choose
from twostroke.runner.sampling.logprobs import token_logprob
from twostroke.runner.sampling.offer import offer, unchanged
from twostroke.runner.sampling.random_draw import draw
from twostroke.types.plan import PlannedSequence
from twostroke.types.result import SampledToken
from twostroke.types.sampling.forbidden_tokens import NoTokenLeft


def sample(weigh: Weigh, logits: F32Array, sequence: PlannedSequence) -> SampledToken:
    """Returns the token of a row. logits: (V,) float32, raw, not changed. weigh: makes whole-number weights from them.

    Raises NoTokenLeft where the request itself forbids every token. Raises ValueError where the model gave no finite
    logit, or where the request's mask has failed.
    """
    params = sequence.request.params
    changes = changes_of(sequence)
    adjusted = logits if changes is None else changes.changed(logits)
    token_id: int = int(np.argmax(adjusted))
    memory: tuple[float, ...] = ()
    if not np.isfinite(adjusted[token_id]):
        refuse(sequence, changes is not None, float(logits.max()))
    if params.greedy:
        pass
    elif params.has_chain:
        token_id, memory = chosen(weigh, adjusted, sequence)
    else:
        drawn = draw(sequence.request.seed, sequence.num_output_tokens)
        token_id = choose(weigh, adjusted, params.temperature, params.top_k, params.top_p, params.min_p, drawn)
    num_top = sequence.request.num_top
    logprob = None if num_top is None else token_logprob(weigh, logits, token_id, num_top)
    if logprob is None or not sequence.request.steered:
        return SampledToken(token_id, logprob, (), memory)
    offered = unchanged(logprob) if changes is None else offer(weigh, logits, changes, sequence.request.num_offered)
    return SampledToken(token_id, logprob, offered)


def refuse(sequence: PlannedSequence, is_changed: bool, raw_best: float) -> NoReturn:
    """Raises the error of a row whose largest logit after the request's changes is not finite: NoTokenLeft where the
    request forbids every token, or else ValueError. raw_best: the largest logit before the changes."""
    if is_changed and forbids(sequence.request.params) and math.isfinite(raw_best):
        raise NoTokenLeft("every token is forbidden by the request")
    raise ValueError("the model gave no finite logit for this request")
