"""One completion's way from tokens to the text that its reader may see: detokenizer, stop strings, and the text that
both hold back.

    tokens -> detokenizer -> stop matcher -> Piece(text, the tokens that this text is made of)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from twostroke.text.detokenizer import Vocabulary, detokenizer_for
from twostroke.text.stops import StopMatcher
from twostroke.types.result import TokenLogprob
from twostroke.types.sampling.sampling_params import SamplingParams


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Text that will not change, and the tokens whose text is now out completely. One piece is made for each token."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class _Held(Struct):
    """A token that is not delivered yet. Its text is [start, end) of the whole text, in characters. end: None while a
    character is incomplete."""

    token_id: int
    logprob: TokenLogprob | None
    start: int
    end: int | None


class CompletionText:
    """Makes pieces: feed(token) -> Piece; finish() -> the rest. After `stop` is set, nothing more comes out.

    A token is delivered with the piece that carries the last of its text. Tokens that lie wholly within a stop string
    or after it are never delivered. num_tokens: the number of tokens that were fed, delivered or not.
    """

    def __init__(self, vocabulary: Vocabulary, params: SamplingParams, context_ids: Sequence[int] = ()) -> None:
        self._detokenizer = detokenizer_for(vocabulary, context_ids)
        self._matcher = StopMatcher(params.stop)
        self._stops = bool(params.stop)
        self._min_tokens = params.min_tokens
        self._held: deque[_Held] = deque()
        self._num_read = 0  # characters that the detokenizer has returned
        self._num_sure = 0  # characters that the matcher has returned
        self.num_tokens = 0
        self.stop: str | None = None

    def feed(self, token_id: int, logprob: TokenLogprob | None) -> Piece:
        """Take the next token and return the piece that can be delivered. A stop string that is complete before
        min_tokens does not count."""
        if self.stop is not None:
            return Piece()
        self.num_tokens += 1
        text = self._detokenizer.feed(token_id)
        if not (self._stops or self._held or self._detokenizer.holding):
            # Nothing can hold this text back. The two counters are only compared with each other, so both leave this
            # text out.
            return Piece(text, (token_id,), () if logprob is None else (logprob,))
        self._held.append(_Held(token_id, logprob, self._num_read, None))
        self._num_read += len(text)
        if self.num_tokens < self._min_tokens:
            text = self._matcher.feed_unstopped(text)
        else:
            text, self.stop = self._matcher.feed(text)
        self._num_sure += len(text)
        return self._released(text)

    def finish(self) -> Piece:
        """Returns everything that was held back, because no more tokens come."""
        if self.stop is not None:
            return Piece()
        read = self._detokenizer.finish()
        self._num_read += len(read)
        text, self.stop = self._matcher.feed(read)
        if self.stop is None:
            text += self._matcher.finish()
        self._num_sure += len(text)
        return self._released(text)

    def _released(self, text: str) -> Piece:
        out: list[_Held] = []
        if not self._detokenizer.holding:
            for held in self._held:
                held.end = self._num_read if held.end is None else held.end
        if self.stop is not None:
            out = [held for held in self._held if held.start < self._num_sure]
            self._held.clear()
        while self._held and self._held[0].end is not None and self._held[0].end <= self._num_sure:
            out.append(self._held.popleft())
        logprobs = tuple(held.logprob for held in out if held.logprob is not None)
        return Piece(text, tuple(held.token_id for held in out), logprobs)
