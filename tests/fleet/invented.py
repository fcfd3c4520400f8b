"""The results of the model of the virtual world, with and without pages, and its whole answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from twostroke.engine.beams.search import BeamSearch, Rules
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.result import Continuation, SampledToken, StepResult, TokenLogprob

PAGE_TOKENS = 4
VOCABULARY = 50


def next_token(seed: int, prompt: tuple[int, ...], output: tuple[int, ...]) -> int:
    """The next token of the model of this world: a function of seed, prompt and all output so far."""
    return hash((seed, prompt, output)) % VOCABULARY


def whole_answer(request: Request) -> list[int]:
    """The answer of a replica without faults, with its end token."""
    output: list[int] = []
    while len(output) < request.max_tokens:
        output.append(next_token(request.seed, request.prompt_token_ids, tuple(output)))
        if output[-1] in request.end_token_ids:
            break
    return output


def logprob_of(token: int) -> TokenLogprob:
    """The log probability of a chosen token in this world."""
    return TokenLogprob(token, -token / 7)


@lru_cache(maxsize=4096)
def offered(prompt: tuple[int, ...], output: tuple[int, ...], count: int) -> tuple[Continuation, ...]:
    """The possible next tokens of a beam in this world, best first."""
    scores = {token: -(hash((prompt, output, token)) % 1009) / 101 for token in range(VOCABULARY)}
    best = sorted(scores, key=lambda token: (-scores[token], token))[:count]
    return tuple(Continuation(token, scores[token], scores[token]) for token in best)


def whole_answers(group: list[Request]) -> list[tuple[list[int], float]]:
    """The answers of a beam search without faults, best first, with their scores."""
    first = group[0]
    search = BeamSearch(Rules(len(group), first.end_token_ids, first.max_tokens))
    while not search.done:
        outputs = [tuple(each.token.token_id for each in beam.tokens()) for beam in search.beams]
        search.step(
            [SampledToken(0, None, offered(first.prompt_token_ids, output, first.num_offered)) for output in outputs],
            0.0,
        )
    return [([each.token.token_id for each in answer.tokens()], answer.score) for answer in search.answers]


def sampled_token(request: Request, prompt: tuple[int, ...], output: tuple[int, ...]) -> SampledToken:
    """The next token. prompt: the prompt as the executor knows it."""
    token = next_token(request.seed, prompt, output)
    found = offered(prompt, output, request.num_offered) if request.steered else ()
    return SampledToken(token, None if request.params.logprobs is None else logprob_of(token), found)


class InventedModel:
    """An executor that answers by `next_token`."""

    def execute(self, plan: Plan) -> StepResult:
        sampled: dict[str, Any] = {}
        for sequence in plan.sequences:
            if sequence.samples:
                prompt = sequence.request.prompt_token_ids
                output = tuple(sequence.known_token_ids[len(prompt) :])
                sampled[sequence.request.request_id] = (sampled_token(sequence.request, prompt, output),)
        return StepResult(sampled)


class PagedModel:
    """An executor that writes each computed token into its page and answers by what it reads from all pages.

    It also satisfies PageStore: a page is its tokens, and a page that was never written has none.
    """

    page_bytes = 4 * PAGE_TOKENS

    def __init__(self) -> None:
        self.pages: dict[int, list[int]] = {}

    def read(self, page_ids: Sequence[int]) -> bytes:
        (page,) = page_ids
        return struct.pack(f"<{PAGE_TOKENS}i", *self.pages[page])

    def write(self, page_ids: Sequence[int], data: bytes) -> None:
        (page,) = page_ids
        self.pages[page] = list(struct.unpack(f"<{PAGE_TOKENS}i", data))

    def execute(self, plan: Plan) -> StepResult:
        sampled: dict[str, Any] = {}
        for _, source, target in plan.page_copies:
            self.pages[target] = list(self.pages[source])
        for sequence in plan.sequences:
            (table,), request = sequence.tables, sequence.request
            end = sequence.start + sequence.num_tokens
            for position in range(sequence.start, end):
                page = self.pages.setdefault(table[position // PAGE_TOKENS], [-1] * PAGE_TOKENS)
                page[position % PAGE_TOKENS] = sequence.known_token_ids[position]
            if sequence.samples:
                pages = table[: -(-end // PAGE_TOKENS)]
                read = [token for page in pages for token in self.pages[page]][:end]
                prompt = len(request.prompt_token_ids)
                token = sampled_token(request, tuple(read[:prompt]), tuple(read[prompt:]))
                sampled[request.request_id] = (token,)
        return StepResult(sampled)
