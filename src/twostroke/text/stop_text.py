"""Follows the text of one beam of a beam search, to know whether its last token completes a stop string."""

from __future__ import annotations

import copy

from twostroke.text.detokenizer import CONTEXT_TOKENS, Vocabulary, detokenizer_for, showing
from twostroke.text.stops import StopMatcher
from twostroke.types.request import Request


class StopText:
    """The text of one beam. `after` returns a new text and changes none, so that beams with a common beginning share
    it.

    stopped: True where the last token completes a stop string. As in CompletionText, a stop string that is complete
    before min_tokens does not count.
    """

    def __init__(self, vocabulary: Vocabulary, request: Request) -> None:
        params, context_ids = request.params, request.prompt_token_ids[-CONTEXT_TOKENS:]
        self._detokenizer = detokenizer_for(showing(vocabulary, request.shown_token_ids), context_ids)
        self._matcher = StopMatcher(params.stop)
        self._min_tokens, self._num_tokens = params.min_tokens, 0
        self.stopped = False

    def after(self, token_id: int) -> StopText:
        """Returns the StopText of this beam after one more token."""
        made = copy.copy(self)
        made._detokenizer, made._matcher = self._detokenizer.fork(), self._matcher.fork()
        made._num_tokens += 1
        text = made._detokenizer.feed(token_id)
        if made._num_tokens < made._min_tokens:
            made._matcher.feed_unstopped(text)
        else:
            made.stopped = made._matcher.feed(text)[1] is not None
        return made


def stop_text(vocabulary: Vocabulary, request: Request) -> StopText | None:
    """Returns the StopText of a request before its first output token; None where the request has no stop strings."""
    return StopText(vocabulary, request) if request.params.stop else None
