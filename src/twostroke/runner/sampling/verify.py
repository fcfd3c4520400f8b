"""Samples tokens from the rows of logits of one sequence: first for its last known token, then for its draft tokens
while they are right."""

from __future__ import annotations

from collections.abc import Iterator

from twostroke.ops.attention.token_weights import Weigh
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.changes import Changes, changes_of
from twostroke.runner.sampling.sampler import sample
from twostroke.types.grammar import GrammarFault
from twostroke.types.plan import PlannedSequence
from twostroke.types.result import SampledToken
from twostroke.types.sampling.forbidden_tokens import NoTokenLeft

FAULTS = (GrammarFault, NoTokenLeft, ValueError, IndexError)
"""The errors that sampling one row may raise. They end the sampling of guesses, and not the step."""


def sample_rows(weigh: Weigh, rows: F32Array, sequence: PlannedSequence) -> tuple[SampledToken, ...]:
    """Returns the sampled tokens of a sequence, at least one. Each is the token that a step without guesses would have
    sampled. rows: (1 + draft tokens, V).

    Each row is sampled as if the guesses before it were right, and counts only if they are. Raises what `sample` raises
    for the first row. A fault in a later row only ends the tokens; the next step computes that row again.
    """
    sampled = [sample(weigh, rows[0], sequence)]
    if sequence.draft_token_ids and sampled[0].token_id == sequence.draft_token_ids[0]:
        sampled += _behind(weigh, sampled[0], rows, sequence)
    return tuple(sampled)


def _behind(weigh: Weigh, first: SampledToken, rows: F32Array, sequence: PlannedSequence) -> list[SampledToken]:
    """Returns the tokens that are sampled after the first one, as long as each guess equals the token that was sampled
    for its position. first: the first sampled token. When this function returns, the request's mask has its old state,
    because only a commit may move the mask on."""
    request, num_output = sequence.request, sequence.num_output_tokens
    known, mask = list(sequence.known_token_ids), request.mask
    sampled, token_id, memory = list[SampledToken](), first.token_id, first.memory
    try:
        for place, guess in enumerate(sequence.draft_token_ids):
            if token_id != guess or request.ends_with(token_id, num_output + place):
                break
            known.append(token_id)
            if mask is not None:
                mask.feed(token_id)
            after = sequence._replace(known_token_ids=known, memory=memory)
            sampled.append(sample(weigh, rows[place + 1], after))
            token_id, memory = sampled[-1].token_id, sampled[-1].memory
    except FAULTS:
        pass
    finally:
        if mask is not None:
            mask.rewind(num_output)
    return sampled


def as_if_right(sequence: PlannedSequence) -> Iterator[tuple[PlannedSequence, Changes | None]]:
    """Yields, for each row of logits of a sequence, the sequence and the changes of its request to the row. The guesses
    before the row are taken to be right. The rows end with a guess after which no row can count: it ends the text, it
    is forbidden, or the request's mask fails there.

    It is used where all rows are sampled at once. Each yielded sequence is valid until the next one is asked for. The
    iterator must be used to its end, because only then the request's mask gets its old state back. Raises ValueError
    where the mask fails at the first row.
    """
    request, num_output, mask = sequence.request, sequence.num_output_tokens, sequence.request.mask
    changes = changes_of(sequence)
    yield sequence, changes
    known = list(sequence.known_token_ids) if sequence.draft_token_ids else []
    try:
        for place, guess in enumerate(sequence.draft_token_ids):
            if request.ends_with(guess, num_output + place):
                break
            if mask is not None:
                if changes is None or changes.bits is None or not _allows(changes.bits, guess):
                    break  # a mask that took a forbidden token cannot go back
                mask.feed(guess)
            known.append(guess)
            each = sequence._replace(known_token_ids=known)
            changes = changes_of(each)
            yield each, changes
    except FAULTS:
        pass
    finally:
        if mask is not None and sequence.draft_token_ids:
            mask.rewind(num_output)


def _allows(bits: bytes, token_id: int) -> bool:
    return 0 <= token_id < 8 * len(bits) and bool(bits[token_id // 8] >> token_id % 8 & 1)
