"""eagle: a layer over the model's hidden states writes what the model may write next.

It reads the text as a draft model does, but one token ahead: at position t the token t + 1 and the hidden state at t.
What it computed of its own hidden states is computed again once the model's are known.

Source: EAGLE (Li et al. 2024), one chain of tokens; MODELS.md, section 6.

Knows: what a draft knows, that positions of guesses are read again.
Must not know: hidden states, which kernels run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from twostroke.cache.manager import CacheManager
from twostroke.speculate.draft import DraftExecutor, DraftProposer
from twostroke.speculate.proposer import Guess, GuessWanted
from twostroke.types.request import Request


class HiddenExecutor(DraftExecutor, Protocol):
    """Runs plans on the layer."""

    def forget(self, request_id: str) -> None:
        """The request has ended."""


class EagleProposer:
    """Satisfies `speculate.proposer.Proposer`. Arguments as of DraftProposer."""

    name, computes = "eagle", True

    def __init__(
        self,
        executor: HiddenExecutor,
        cache: CacheManager,
        max_sequences: int,
        context_tokens: int,
        clock: Callable[[], float],
        first_token_s: float,
        report: Callable[[Exception], None],
    ) -> None:
        self._executor = executor
        self._writer = DraftProposer(executor, cache, max_sequences, context_tokens, clock, first_token_s, report)
        self._requests: dict[str, Request] = {}
        self.longest, self.ask_s, self.token_s, self.spent_s = self._writer.longest, 0.0, first_token_s, 0.0

    def propose(self, wanted: Sequence[GuessWanted]) -> Sequence[Guess]:
        """See Proposer."""
        ahead = [GuessWanted(self._ahead(each.request), each.known[1:], each.most) for each in wanted]
        found = self._writer.propose([each for each in ahead if each.known])
        self.ask_s, self.token_s, self.spent_s = self._writer.ask_s, self._writer.token_s, self._writer.spent_s
        for each in ahead:
            self._writer.certain(each.request, len(each.known))
        left = iter(found)
        return [next(left) if each.known else Guess() for each in ahead]

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """See Proposer."""
        self._requests.pop(request.request_id, None)
        self._executor.forget(request.request_id)
        self._writer.ended(request, known)

    def _ahead(self, request: Request) -> Request:
        """As the layer runs it: its text begins with the second token, so that outputs keep their places."""
        found = self._requests.get(request.request_id)
        if found is None:
            found = replace(request, prompt_token_ids=request.prompt_token_ids[1:])
            self._requests[request.request_id] = found
        return found
