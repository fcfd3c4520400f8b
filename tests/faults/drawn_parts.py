"""Parts of a random schedule that are drawn from its seed: pools of the cache, prompts."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.faults.memory import VOCAB_SIZE
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.cache_pools import CachePools, PagePoolSize, window_pages
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams


def make_pools(dice: random.Random, num_pages: int, page_tokens: int, limits: SchedulerLimits) -> CachePools:
    """A quarter of the seeds get only pages without a window. The others also get windows, states, or both."""
    full, windows, states = dice.choice(
        [(1, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 2, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1)]
    )
    pages = [PagePoolSize(num_pages)] * full
    for _ in range(windows):
        window = dice.choice([1, 2, 3, 7, 8, 20])
        chunk = min(limits.max_step_tokens, dice.choice([1, 5, 12, 40]))
        least = window_pages(window, chunk, page_tokens)
        pages.append(PagePoolSize(least + dice.choice([0, 0, 1, 5, 30]), window))
    slots = dice.choice([1, 2, limits.max_sequences, limits.max_sequences + 2, 3 * limits.max_sequences + 10])
    return CachePools(tuple(pages), slots * states, limits.max_step_tokens)


def make_prompts(dice: random.Random) -> list[tuple[int, Prompt]]:
    """Pairs (turn, prompt): a few requests, some with a common beginning, some with siblings, stops, priorities and
    salts."""
    stem = tuple(dice.randrange(VOCAB_SIZE) for _ in range(20))
    made: list[tuple[int, Prompt]] = []
    spread, longest = dice.choice([(0, 24), (0, 12), (4, 16), (15, 16)])
    for number in range(dice.randint(1, 7)):
        own = tuple(dice.randrange(VOCAB_SIZE) for _ in range(dice.randint(1, 12)))
        params = SamplingParams(
            n=dice.choice([1, 1, 1, 2, 3]),
            seed=dice.getrandbits(40),
            max_tokens=dice.randint(1, longest),
            ignore_eos=dice.random() < 0.2,
            stop_token_ids=tuple(dice.sample(range(VOCAB_SIZE), dice.choice([0, 0, 1]))),
        )
        if dice.random() < 0.3:
            params = replace(params, stop=tuple(dice.choice("ABCDEFGHIJ") for _ in range(3)))
        elif dice.random() < 0.3:
            params = replace(params, min_tokens=dice.randint(0, params.max_tokens or 1))
        prompt = Prompt(
            stem[: dice.choice([0, 0, 5, 8, 16, 20])] + own,
            params,
            f"r{number}",
            dice.choice(["", "", "b"]),
            dice.choice([0, 0, 0, 1]),
        )
        made.append((dice.randint(0, spread), prompt))
    if dice.random() < 0.2:  # an id comes again, perhaps while the first is live; then it is refused
        made.append((dice.randint(10, 40), replace(made[0][1], priority=0)))
    return made
