"""Beam search over log probabilities, as transformers' generate(num_beams=..., do_sample=False) does it.

Of all continuations of all beams by one token, the best `width` are looked at. Those among them that end, by an end
token or because the answer has its last token, are finished answers; their score is the sum of log probabilities
divided by (length ** length_penalty), the end token counted. The best `width` finished answers are kept. The best
`width` continuations that do not end are the next beams. Where scores are equal, the earlier beam is first, then the
likelier token.

Source: `_beam_search` of transformers 5 (generation/utils.py), for one prompt.

Knows: token ids, log probabilities.
Must not know: where they come from, requests, the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twostroke.types.many_answers import NEVER
from twostroke.types.result import TokenLogprob


class Chosen(NamedTuple):
    """One token of a beam. before: the token before it. Beams with a common beginning share it."""

    before: Chosen | None
    token: TokenLogprob
    at_s: float


@dataclass(frozen=True, slots=True)
class Beam:
    """An answer that goes on. total: sum of its log probabilities; place: of the beam that it continues."""

    total: float = 0.0
    last: Chosen | None = None
    place: int = 0


@dataclass(frozen=True, slots=True)
class FinishedBeam:
    """A finished answer. ended: by an end token, which is its last one."""

    score: float
    last: Chosen
    ended: bool

    def tokens(self) -> list[Chosen]:
        """All its tokens, in order."""
        found: list[Chosen] = []
        link: Chosen | None = self.last
        while link is not None:
            found.append(link)
            link = link.before
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Rules:
    """width: beams. end_ids: tokens that end an answer which has min_tokens tokens before it. max_tokens: of an answer,
    at least 1. length_penalty, early_stopping: see SamplingParams."""

    width: int
    end_ids: Collection[int]
    max_tokens: int
    min_tokens: int = 0
    length_penalty: float = 1.0
    early_stopping: bool | str = False


class BeamSearch:
    """beams: those that are to be continued, best first. answers: the finished ones, best first. done: nothing is left
    to do. length: tokens of each beam."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.beams: list[Beam] = [Beam()]
        self.answers: list[FinishedBeam] = []
        self.length = 0
        self.done = False

    def step(self, tokens: Sequence[TokenLogprob], at_s: float) -> None:
        """tokens: for each beam in order the most likely next tokens, in `top`: at least width + end tokens of them.

        Each of the new beams says in `place` which beam it continues.
        """
        rules = self._rules
        may_end = self.length >= rules.min_tokens
        self.length += 1
        full = self.length >= rules.max_tokens
        found = self._continuations(tokens, may_end, at_s)
        ends = [may_end and each.last.token.token_id in rules.end_ids for each in found if each.last is not None]
        divisor = self.length**rules.length_penalty
        for beam, ended in list(zip(found, ends, strict=True))[: rules.width]:
            if (ended or full) and beam.last is not None:
                self.answers.append(FinishedBeam(beam.total / divisor, beam.last, ended))
        self.answers = sorted(self.answers, key=lambda answer: -answer.score)[: rules.width]
        self.beams = [beam for beam, ended in zip(found, ends, strict=True) if not ended][: rules.width]
        self.done = full or not self.beams or not self._may_improve()

    def _continuations(self, tokens: Sequence[TokenLogprob], may_end: bool, at_s: float) -> list[Beam]:
        """All that were offered, best first."""
        rules = self._rules
        found = [
            Beam(beam.total + logprob, Chosen(beam.last, TokenLogprob(token_id, logprob, offered.top), at_s), place)
            for place, (beam, offered) in enumerate(zip(self.beams, tokens, strict=True))
            for token_id, logprob in offered.top
            if may_end or token_id not in rules.end_ids
        ]
        return sorted(found, key=lambda beam: -beam.total)

    def _may_improve(self) -> bool:
        """Could a beam still give an answer that is kept?"""
        rules = self._rules
        if len(self.answers) < rules.width:
            return True
        if rules.early_stopping is True:
            return False
        longest = rules.early_stopping == NEVER and rules.length_penalty > 0
        length = rules.max_tokens if longest else self.length
        best: float = self.beams[0].total / length**rules.length_penalty
        return best > self.answers[-1].score
