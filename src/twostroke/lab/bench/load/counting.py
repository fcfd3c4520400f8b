"""Finds words for prompts of an exact number of tokens. A tokenizer counts tokens where one is given; otherwise the
server's `usage` gives the counts."""

from __future__ import annotations

from twostroke.lab.bench.load.client import LoadClient
from twostroke.lab.bench.load.server import not_there, refused
from twostroke.lab.bench.load.words import OPENING, WordList, find_words
from twostroke.lab.workload.observation import Observation
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError


async def word_list(client: LoadClient, address: str, tokenizer: Tokenizer | None) -> WordList:
    """Finds the words of which prompts are made. Raises ConfigError where the server answers no probe, or where neither
    a tokenizer nor the server counts tokens."""

    async def by_usage(text: str) -> int:
        seen = await client.ask(text, 1, client.now_s())
        require_answer(seen, address)
        if seen.prompt_tokens is None:
            raise ConfigError(
                "The server does not say how many tokens a prompt has.",
                why="Its stream holds no usage, though stream_options.include_usage asked for it.",
                fix="Give the model's tokenizer: --tokenizer FOLDER.",
            )
        return seen.prompt_tokens

    if tokenizer is None:
        return await find_words(by_usage)

    async def by_tokenizer(text: str) -> int:
        return len(tokenizer.encode_prompt(text))

    found = await find_words(by_tokenizer)
    try:
        fixed = await by_usage(OPENING)
    except ConfigError:
        # The server reports no usage, so the tokens that it adds around a prompt stay unknown. The report notes this.
        return found
    return WordList(found.words, fixed)


def require_answer(seen: Observation, address: str) -> None:
    """Raises ConfigError where the request failed: no server is there, or the server returned an error."""
    if seen.whole:
        return
    if seen.status == 0:
        raise not_there(address, ConnectionError(seen.error))
    raise refused(address, seen.status, seen.error)
