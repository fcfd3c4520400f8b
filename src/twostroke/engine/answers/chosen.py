"""Returns only the best answers of a request: answers are held back until all of them have ended, and are then sorted.

With best_of they are sorted by the mean log probability of their tokens. The end token counts; tokens that a stop
string took away do not. With beam search the engine already gives the answers in order, with their scores.
"""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from twostroke.types.output import Delta
from twostroke.types.request import FinishReason
from twostroke.types.sampling.sampling_params import SamplingParams

_FAILED = (FinishReason.ERROR, FinishReason.ABORT)


class ChosenAnswers:
    """Takes the pieces of all answers of one request. When all answers have ended, it returns the n best, each as one
    piece."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._pieces: list[list[Delta]] = [[] for _ in range(params.num_answers)]
        self._num_open = params.num_answers

    def add(self, delta: Delta) -> list[Delta]:
        """Take one piece. Returns the best answers, best first, when the last answer has ended; an empty list before.

        Failed answers come before all others. So the caller sees the error: the rest was chosen from fewer answers than
        the request asked for.
        """
        self._pieces[delta.index].append(delta)
        self._num_open -= delta.finish_reason is not None
        if self._num_open:
            return []
        whole = [self._joined(pieces) for pieces in self._pieces]
        ranked = sorted(whole, key=lambda each: (each.finish_reason not in _FAILED, -(each.score or 0.0)))
        given, others = ranked[: self._params.n], ranked[self._params.n :]
        first = whole[0]
        given[0] = replace(
            given[0],
            prompt_logprobs=tuple(itertools.chain.from_iterable(piece.prompt_logprobs for piece in self._pieces[0])),
            num_cached_tokens=first.num_cached_tokens,
            num_other_tokens=sum(each.num_output_tokens for each in others),
        )
        return [replace(each, index=rank) for rank, each in enumerate(given)]

    def _joined(self, pieces: list[Delta]) -> Delta:
        last = pieces[-1]
        logprobs = tuple(itertools.chain.from_iterable(piece.logprobs for piece in pieces))
        values = [each.logprob for each in (*logprobs, last.end_logprob) if each is not None]
        mean = sum(values) / len(values) if values else None
        asked = self._params.logprobs is not None
        return replace(
            last,
            text="".join(piece.text for piece in pieces),
            token_ids=tuple(itertools.chain.from_iterable(piece.token_ids for piece in pieces)),
            logprobs=logprobs if asked else (),
            end_logprob=last.end_logprob if asked else None,
            prompt_logprobs=(),
            score=last.score if self._params.use_beam_search else mean,
        )
