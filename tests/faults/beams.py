"""Beams in random schedules. The possible next tokens of a beam are a function of all tokens before, and so are the
right answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from tests.faults.expected import Expected, text_of
from tests.faults.memory import VOCAB_SIZE, begin, link
from twostroke.engine.beams.search import BeamSearch, Rules
from twostroke.engine.executor import Executor
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import FinishReason
from twostroke.types.result import Continuation, SampledToken, StepResult
from twostroke.types.sampling.many_answers import num_offered

SCORES = 997


class Offering:
    """Adds the possible next tokens to the tokens of beams. chain_at: the chain in the memory for a sequence's last
    row."""

    def __init__(self, inner: Executor, chain_at: Callable[[PlannedSequence], int]) -> None:
        self._inner, self._chain_at = inner, chain_at

    def execute(self, plan: Plan) -> StepResult:
        """The result of the inner executor."""
        result = self._inner.execute(plan)
        beams = [each for each in plan.sequences if each.samples and each.request.steered]
        found = {each.request.request_id: (SampledToken(0, None, self._offered(each)),) for each in beams}
        return replace(result, sampled={**result.sampled, **found})

    def _offered(self, planned: PlannedSequence) -> tuple[Continuation, ...]:
        request = planned.request
        may_end = planned.num_output_tokens >= request.params.min_tokens
        return offered(self._chain_at(planned), request.num_offered, frozenset() if may_end else request.end_token_ids)


@dataclass(frozen=True)
class Written:
    """A BeamText by its definition."""

    stops: tuple[str, ...]
    text: str = ""

    @property
    def stopped(self) -> bool:
        return any(stop in self.text for stop in self.stops)

    def after(self, token_id: int) -> Written:
        return replace(self, text=self.text + text_of([token_id]))


@lru_cache(maxsize=4096)
def offered(chain: int, count: int, banned: frozenset[int]) -> tuple[Continuation, ...]:
    """The best `count` tokens after a chain."""
    scores = {token: -(hash((chain, token)) % SCORES) / SCORES for token in range(VOCAB_SIZE) if token not in banned}
    best = sorted(scores, key=lambda token: (-scores[token], token))[:count]
    return tuple(Continuation(token, scores[token], scores[token]) for token in best)


def expected_beams(prompt: Prompt, max_tokens: int, end_ids: frozenset[int]) -> list[Expected]:
    """All answers of a prompt with a beam search, best first, and how each ends."""
    params = prompt.params
    ends = (frozenset() if params.ignore_eos else end_ids) | frozenset(params.stop_token_ids)
    rules = Rules(params.num_answers, ends, max_tokens, params.length_penalty, params.early_stopping)
    search = BeamSearch(rules, Written(params.stop) if params.stop else None)
    start = begin(prompt.cache_salt)
    for token_id in prompt.token_ids:
        start = link(start, token_id)
    while not search.done:
        banned = ends if search.length < params.min_tokens else frozenset()
        sampled = []
        for beam in search.beams:
            chain = start
            for each in beam.tokens():
                chain = link(chain, each.token.token_id)
            sampled.append(SampledToken(0, None, offered(chain, num_offered(params, len(ends)), banned)))
        search.step(sampled, 0.0)
    found = []
    for answer in search.answers:
        made = [each.token.token_id for each in answer.tokens()]
        told = made[:-1] if answer.ended else made
        told = told[: min([len(told), *(text_of(told).find(stop) for stop in params.stop if stop in text_of(told))])]
        reason = FinishReason.STOP if answer.ended or answer.stopped else FinishReason.LENGTH
        found.append(Expected(tuple(told), text_of(told), reason, len(made)))
    return found


def some_searches(dice: random.Random, prompts: list[tuple[int, Prompt]]) -> list[tuple[int, Prompt]]:
    """The prompts, some of them with a beam search."""
    if dice.random() < 0.75:
        return prompts
    return [(turn, searching(dice, prompt) if dice.random() < 0.5 else prompt) for turn, prompt in prompts]


def searching(dice: random.Random, prompt: Prompt) -> Prompt:
    """The prompt with a beam search."""
    params = replace(
        prompt.params,
        n=dice.choice([2, 3, 4]),
        use_beam_search=True,
        length_penalty=dice.choice([0.5, 1.0, 2.0]),
        early_stopping=dice.choice([True, False, "never"]),
    )
    return replace(prompt, params=params)
