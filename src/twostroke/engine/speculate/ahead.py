"""eagle, mtp: a layer over the model's hidden states guesses the model's next tokens.

It reads the text as a draft model does, but one token ahead: at position t it reads the token t + 1 and the hidden
state at t. For guesses it takes hidden states of its own; these positions are computed again as soon as the model's
hidden states are known.

Sources: EAGLE (Li et al. 2024), multi-token prediction (DeepSeek-AI 2024); one chain of tokens; MODELS.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from twostroke.engine.speculate.draft import DraftProposer
from twostroke.engine.speculate.proposer import Guess, GuessWanted
from twostroke.types.request import Request


class AheadProposer:
    """Proposes tokens with the layers that predict ahead (EAGLE, MTP). Satisfies `speculate.proposer.Proposer`.

    name: the name of this way to speculate. writer: runs plans on these layers. forget: drops the hidden states of a
    request that has ended. layers: the number of layers. With n > 1, layer i guesses the i-th token of a guess. At the
    last n - 1 positions of the text, later layers have read guesses in place of known tokens, so the next call computes
    these positions again.
    """

    computes = True

    def __init__(self, name: str, writer: DraftProposer, forget: Callable[[str], None], layers: int = 1) -> None:
        self.name, self._writer, self._forget = name, writer, forget
        self._requests: dict[str, Request] = {}
        self._again = layers - 1
        self.longest = writer.longest if layers == 1 else layers
        self.ask_s, self.token_s, self.spent_s = writer.ask_s, writer.token_s, writer.spent_s

    def propose(self, wanted: Sequence[GuessWanted]) -> Sequence[Guess]:
        ahead = [
            GuessWanted(self._ahead(each.request), each.known[1:], min(each.most, self.longest)) for each in wanted
        ]
        found = self._writer.propose([each for each in ahead if each.known])
        self.ask_s, self.token_s, self.spent_s = self._writer.ask_s, self._writer.token_s, self._writer.spent_s
        for each in ahead:
            self._writer.certain(each.request, max(0, len(each.known) - self._again))
        left = iter(found)
        return [next(left) if each.known else Guess() for each in ahead]

    def ended(self, request: Request, known: Sequence[int]) -> None:
        self._requests.pop(request.request_id, None)
        self._forget(request.request_id)
        self._writer.ended(request, known)

    def _ahead(self, request: Request) -> Request:
        """Returns the request with its prompt's first token removed, since the layer reads token t + 1 at position t.
        The number of each output token, by which random draws are keyed, stays the same."""
        found = self._requests.get(request.request_id)
        if found is None:
            found = replace(request, prompt_token_ids=request.prompt_token_ids[1:])
            self._requests[request.request_id] = found
        return found
