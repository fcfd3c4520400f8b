"""Joins the streamed pieces of a request's answers into one output."""

from __future__ import annotations

from twostroke.types.output import Completion, Delta, GenerationOutput, Prompt
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob


class Collector:
    """Takes the deltas of one request. `done` is True once each of its completions has its finish reason."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._pieces: list[list[Delta]] = [[] for _ in range(prompt.params.n)]
        self._num_finished = 0

    @property
    def done(self) -> bool:
        """True once all completions have ended, so that the output can be made."""
        return self._num_finished == len(self._pieces)

    def add(self, delta: Delta) -> None:
        """Take one piece."""
        self._pieces[delta.index].append(delta)
        self._num_finished += delta.finish_reason is not None

    def output(self) -> GenerationOutput:
        """Returns all completions. Raises ValueError before `done`."""
        if not self.done:
            raise ValueError("the stream has not ended")
        return GenerationOutput(
            request_id=self._pieces[0][-1].request_id,
            prompt_token_ids=self._prompt.token_ids,
            completions=tuple(self._completion(pieces) for pieces in self._pieces),
            num_cached_tokens=self._pieces[0][-1].num_cached_tokens,
            prompt_logprobs=self._prompt_logprobs(),
            num_other_tokens=self._pieces[0][-1].num_other_tokens,
            rows_sum=self._pieces[0][-1].rows_sum,
        )

    def _prompt_logprobs(self) -> tuple[TokenLogprob, ...] | None:
        if self._prompt.params.prompt_logprobs is None:
            return None
        return tuple(logprob for piece in self._pieces[0] for logprob in piece.prompt_logprobs)

    def _completion(self, pieces: list[Delta]) -> Completion:
        last = pieces[-1]
        logprobs = tuple(logprob for piece in pieces for logprob in piece.logprobs)
        return Completion(
            index=last.index,
            text="".join(piece.text for piece in pieces),
            token_ids=tuple(token_id for piece in pieces for token_id in piece.token_ids),
            finish_reason=last.finish_reason or FinishReason.ERROR,
            stop_reason=last.stop_reason,
            logprobs=None if self._prompt.params.logprobs is None else logprobs,
            error=last.error,
            timings=last.timings,
            num_preemptions=last.num_preemptions,
            num_output_tokens=last.num_output_tokens,
            score=last.score,
        )
