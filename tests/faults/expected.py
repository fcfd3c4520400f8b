"""The right completion by its definition: one token after another, without an engine."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.memory import VOCAB_SIZE, begin, link, token_after
from twostroke.runner.sampling.random_draw import sibling_seed
from twostroke.types.output import Prompt
from twostroke.types.request import FinishReason

LETTERS = "".join(chr(ord("A") + i) for i in range(VOCAB_SIZE))


@dataclass(frozen=True)
class Expected:
    """token_ids: the delivered tokens; text: their text; num_output_tokens: the generated tokens, with an end token or
    a stop string."""

    token_ids: tuple[int, ...]
    text: str
    reason: FinishReason
    num_output_tokens: int


def expected(prompt: Prompt, index: int, max_tokens: int, end_ids: frozenset[int]) -> Expected:
    """Completion number `index` of a prompt that may have max_tokens tokens."""
    params = prompt.params
    assert params.seed is not None
    seed = sibling_seed(params.seed, index)
    ends = (frozenset() if params.ignore_eos else end_ids) | frozenset(params.stop_token_ids)
    chain = begin(prompt.cache_salt)
    for token_id in prompt.token_ids:
        chain = link(chain, token_id)
    made: list[int] = []
    while True:
        token_id = token_after(seed, chain)
        if token_id in ends and len(made) >= params.min_tokens:
            return Expected(tuple(made), text_of(made), FinishReason.STOP, len(made) + 1)
        made.append(token_id)
        chain = link(chain, token_id)
        text = text_of(made)
        starts = [text.find(stop) for stop in params.stop if stop in text]
        if starts:
            kept = min(starts)
            return Expected(tuple(made[:kept]), text[:kept], FinishReason.STOP, len(made))
        if len(made) >= max_tokens:
            return Expected(tuple(made), text, FinishReason.LENGTH, len(made))


def text_of(token_ids: list[int]) -> str:
    """The text with one letter for each token."""
    return "".join(LETTERS[token_id] for token_id in token_ids)


class Letters:
    """Satisfies text.detokenizer.Vocabulary."""

    byte_level = True
    special_ids: frozenset[int] = frozenset()

    def decode(self, token_ids: list[int]) -> str:
        """The text of all ids."""
        return text_of(list(token_ids))

    def has(self, token_id: int) -> bool:
        """Whether the id is in the vocabulary."""
        return 0 <= token_id < VOCAB_SIZE

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token."""
        return LETTERS[token_id].encode()
