"""Makes prompts of an exact number of tokens, from words of one token each.

A tokenizer splits text at spaces before it merges. Words that are one token each after a space therefore make as many
tokens as there are words, in any order. These words are found by counting tokens, with a tokenizer or by the server's
`usage`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from twostroke.lab.workload.draws import Draws, mix
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.errors import ConfigError

CANDIDATES = (
    "the of and to in is that for it as with on be by at this from or an are not have one all new time may more when "
    "out up no so if what about which can only other some into them then like over also back after use two how our "
    "work first well way even because any most us good part line place small large still world point side hand state "
    "head number name read long down made own under high every end home right word form life light table"
).split()
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
OPENING = "Read"
REPEATS, ENOUGH_WORDS, RANDOM_WORDS = 8, 12, 16

Count = Callable[[str], Awaitable[int]]
"""Returns the number of tokens of a whole prompt with this text, including the tokens that the server puts around it.
"""


@dataclass(frozen=True, slots=True)
class WordList:
    """Makes synthetic prompts. words: words that are one token each. before: the text between two words, which belongs
    to that token. fixed_tokens: the tokens of OPENING, the first word of each prompt, and of what the server puts
    around it."""

    words: tuple[str, ...]
    fixed_tokens: int
    before: str = " "

    def text(self, request: WorkloadRequest, seed: int, index: int) -> str:
        """Returns a prompt of request.prompt_tokens tokens, with at least one word after the fixed part. A request that
        has a text keeps it.

        Prompts share a beginning where their requests begin with the same block_ids: the words of a block depend on its
        id and seed. The other words depend on `index`, the request's number, so that prompts differ from there on.
        """
        if request.text is not None:
            return request.text
        count = max(1, request.prompt_tokens - self.fixed_tokens)
        chosen: list[str] = []
        for block in request.block_ids:
            # The fixed tokens come first, so the words of a block lie that many tokens later in the prompt than the
            # block does in the request.
            chosen += self._draw(Draws(mix(seed) ^ block, "block"), request.block_tokens)
        chosen += self._draw(Draws(seed, f"prompt {index}"), count - len(chosen))
        return self.before.join([OPENING, *chosen[:count]])

    def _draw(self, draws: Draws, count: int) -> list[str]:
        """Draws `count` words. The first RANDOM_WORDS are random, which tells prompts apart. The others follow in the
        order of the list, which is repeated as needed, because that is quick."""
        size = len(self.words)
        head = [self.words[draws.below(size)] for _ in range(min(count, RANDOM_WORDS))]
        left, start = count - len(head), draws.below(size)
        return head + list((self.words * (left // size + 2))[start : start + left])


async def find_words(count: Count, candidates: Sequence[str] = CANDIDATES) -> WordList:
    """Finds the candidates that are one token each. Raises ConfigError where there are too few."""
    fixed = await count(OPENING)
    if await count(" ".join([OPENING, *candidates])) == fixed + len(candidates):
        return WordList(tuple(candidates), fixed)
    found: list[str] = []
    for word in candidates:
        if await count(" ".join([OPENING, *[word] * REPEATS])) == fixed + REPEATS:
            found.append(word)
        if len(found) == ENOUGH_WORDS:
            break
    if len(found) < ENOUGH_WORDS // 2:
        if await count(OPENING + LETTERS + LETTERS[::-1]) == fixed + 2 * len(LETTERS):
            return WordList(tuple(LETTERS), fixed, "")  # the tokenizer has no merges
        raise ConfigError(
            "No prompts of an exact length can be made for this server.",
            why=f"Only {len(found)} of {len(candidates)} common English words are one token each by its counts.",
            fix="Give the model's tokenizer (--tokenizer), or a trace that holds text.",
        )
    return WordList(tuple(found), fixed)
