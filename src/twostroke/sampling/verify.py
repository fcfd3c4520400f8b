"""Rows of logits of one sequence to tokens: that of its last known token, then those of its draft while it is right.

Knows: one sequence's rows, its draft.
Must not know: other sequences, who guessed.
"""

from __future__ import annotations

from twostroke.ops.operands import F32Array
from twostroke.ops.token_weights import Weigh
from twostroke.sampling.sampler import sample
from twostroke.types.forbidden_tokens import NoTokenLeft
from twostroke.types.grammar import GrammarFault
from twostroke.types.plan import PlannedSequence
from twostroke.types.result import SampledToken

FAULTS = (GrammarFault, NoTokenLeft, ValueError, IndexError)
"""What `sample` raises."""


def sample_rows(weigh: Weigh, rows: F32Array, sequence: PlannedSequence) -> tuple[SampledToken, ...]:
    """rows (1 + draft tokens, V). At least one token; each is what a step without guesses would have sampled.

    Guessing never changes a token: each row is sampled as if the tokens before it had come step by step, and a row
    counts only where the guess before it is the token that was sampled. Raises what `sample` raises for the first row.
    A fault in a later row is left to the step that comes to that row without a guess: the tokens before it are right.
    """
    sampled = [sample(weigh, rows[0], sequence)]
    if sequence.draft_token_ids and sampled[0].token_id == sequence.draft_token_ids[0]:
        sampled += _behind(weigh, sampled[0].token_id, rows, sequence)
    return tuple(sampled)


def _behind(weigh: Weigh, token_id: int, rows: F32Array, sequence: PlannedSequence) -> list[SampledToken]:
    """Tokens behind the first, `token_id`. The mask of the request is as before when it returns: a commit moves it."""
    request, num_output = sequence.request, sequence.num_output_tokens
    known, mask = list(sequence.known_token_ids), request.mask
    sampled: list[SampledToken] = []
    try:
        for place, guess in enumerate(sequence.draft_token_ids):
            if token_id != guess or request.ends_with(token_id, num_output + place):
                break
            known.append(token_id)
            if mask is not None:
                mask.feed(token_id)
            sampled.append(sample(weigh, rows[place + 1], sequence._replace(known_token_ids=known)))
            token_id = sampled[-1].token_id
    except FAULTS:
        pass
    finally:
        if mask is not None:
            mask.rewind(num_output)
    return sampled
