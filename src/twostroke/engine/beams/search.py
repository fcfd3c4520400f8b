"""Beam search over log probabilities, as transformers' generate(num_beams=..., do_sample=False) does it.

A step considers the best continuations of all beams by one token (`num_looked_at`). Some of the best `width` of them
end, because of an end token, a stop string, or the limit of tokens. These are finished answers. The score of an answer
is the sum of the scores of its tokens divided by (length ** length_penalty), the end token counted. A token's score is
its log probability, with the changes that the request asks for. The best `width` finished answers are kept. The best
`width` continuations that do not end are the next beams. When scores are equal, the earlier beam is first, then the
likelier token.

Source: `_beam_search` of transformers 5 (generation/utils.py), for one prompt.

When few continuations are allowed, or stop strings end many, there are fewer than `width` beams. In this case
transformers fills the missing places with beams that have ended, and keeps no answer of these beams.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from twostroke.types.result import Continuation, SampledToken, TokenLogprob
from twostroke.types.sampling.many_answers import NEVER, num_looked_at


class BeamText(Protocol):
    """Detects stop strings in the text of one beam. The object never changes: `after` returns a new one."""

    @property
    def stopped(self) -> bool:
        """True when the text's last token completes a stop string."""

    def after(self, token_id: int) -> BeamText:
        """Returns the object for the text with one more token."""


class Chosen(NamedTuple):
    """One token of a beam. before: the token before it in the beam. Beams with a common beginning share these objects.
    """

    before: Chosen | None
    token: TokenLogprob
    at_s: float


class Beam(Struct, frozen=True):
    """A beam that is not finished. total: the sum of its log probabilities. place: the index of the beam that it
    continues, in the list of beams before the step. text: the beam's text; None without stop strings."""

    total: float = 0.0
    last: Chosen | None = None
    place: int = 0
    text: BeamText | None = None

    def tokens(self) -> list[Chosen]:
        """Returns all tokens of the beam, in order."""
        return _chain(self.last)


class FinishedBeam(Struct, frozen=True):
    """A finished answer. ended: True when an end token ended the answer; it is the answer's last token. stopped: True
    when a stop string ended the answer."""

    score: float
    last: Chosen
    ended: bool
    stopped: bool = False

    def tokens(self) -> list[Chosen]:
        """Returns all tokens of the answer, in order."""
        return _chain(self.last)


class Rules(Struct, frozen=True):
    """The settings of one search. width: the number of beams. end_ids: the tokens that end an answer; they are not
    offered where an answer may not end. max_tokens: the most tokens of an answer, at least 1. length_penalty,
    early_stopping: see SamplingParams."""

    width: int
    end_ids: Collection[int]
    max_tokens: int
    length_penalty: float = 1.0
    early_stopping: bool | str = False


class BeamSearch:
    """One beam search. beams: the beams to continue, best first. answers: the finished answers, best first. done: True
    when the search is over. length: the number of tokens of each beam."""

    def __init__(self, rules: Rules, text: BeamText | None = None) -> None:
        """text: detects stop strings in the first beam, which has no tokens yet; None when the request has no stop
        strings."""
        self._rules = rules
        self.beams: list[Beam] = [Beam(text=text)]
        self.answers: list[FinishedBeam] = []
        self.length = 0
        self.done = False

    def step(self, sampled: Sequence[SampledToken], at_s: float) -> None:
        """Takes the continuations that were sampled for each beam, and chooses the next beams. sampled: for each beam,
        in order, `num_offered` continuations, or fewer when fewer are allowed.

        Errors of `BeamText.after` are passed on.
        """
        rules = self._rules
        self.length += 1
        full = self.length >= rules.max_tokens
        divisor = self.length**rules.length_penalty
        going_on: list[Beam] = []
        for rank, beam in enumerate(self._continuations(sampled, at_s)):
            last = beam.last
            ended = last is not None and last.token.token_id in rules.end_ids
            text = beam.text if beam.text is None or last is None or ended else beam.text.after(last.token.token_id)
            stopped = text is not None and text.stopped and not ended
            if rank < rules.width and last is not None and (ended or stopped or full):
                self.answers.append(FinishedBeam(beam.total / divisor, last, ended, stopped))
            if not (ended or stopped) and len(going_on) < rules.width:
                going_on.append(replace(beam, text=text))
        self.answers = sorted(self.answers, key=lambda answer: -answer.score)[: rules.width]
        self.beams = going_on
        self.done = full or not self.beams or not self._may_improve()

    def _continuations(self, sampled: Sequence[SampledToken], at_s: float) -> list[Beam]:
        """Returns the continuations to consider, best first, each with the text of the beam that it continues."""
        found = [
            Beam(beam.total + offered.score, Chosen(beam.last, _token_logprob(offered, token), at_s), place, beam.text)
            for place, (beam, token) in enumerate(zip(self.beams, sampled, strict=True))
            for offered in token.offered
        ]
        looked_at = num_looked_at(self._rules.width, len(self._rules.end_ids))
        return sorted(found, key=lambda beam: -beam.total)[:looked_at]

    def _may_improve(self) -> bool:
        """Returns True when a beam could still end with a better score than the finished answers that are kept."""
        rules = self._rules
        if len(self.answers) < rules.width:
            return True
        if rules.early_stopping is True:
            return False
        longest = rules.early_stopping == NEVER and rules.length_penalty > 0
        length = rules.max_tokens if longest else self.length
        best: float = self.beams[0].total / length**rules.length_penalty
        return best > self.answers[-1].score


def _chain(last: Chosen | None) -> list[Chosen]:
    found: list[Chosen] = []
    while last is not None:
        found.append(last)
        last = last.before
    return found[::-1]


def _token_logprob(offered: Continuation, sampled: SampledToken) -> TokenLogprob:
    """Returns a token of an answer with the model's log probability, which may differ from the score by which beams are
    compared."""
    top = () if sampled.logprob is None else sampled.logprob.top
    return TokenLogprob(offered.token_id, offered.logprob, top)
