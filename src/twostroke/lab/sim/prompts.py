"""Makes requests for the scheduler from those of a workload. Their tokens are invented, and equal exactly where the
workload's blocks are equal."""

from __future__ import annotations

from itertools import chain, islice

from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams

OWN_TOKEN_BASE = 1 << 50
"""The first token id of those parts of prompts that no other prompt has. The token ids of shared blocks lie below it.
"""

MOST_PROMPT_TOKENS = 1 << 24
GREEDY = SamplingParams(temperature=0.0)
GREEDY_SCORED = SamplingParams(temperature=0.0, prompt_logprobs=0)
NO_ENDS: frozenset[int] = frozenset()


def prompt_tokens(asked: WorkloadRequest, number: int) -> tuple[int, ...]:
    """Returns the prompt's tokens. Blocks with equal ids have equal tokens; tokens that no block covers are unique.
    number: the request's number."""
    count, block = asked.prompt_tokens, asked.block_tokens
    own = OWN_TOKEN_BASE + number * MOST_PROMPT_TOKENS
    if not asked.block_ids:
        return tuple(range(own, own + count))
    shared = chain.from_iterable([range(each * block, (each + 1) * block) for each in asked.block_ids])
    return tuple(islice(chain(shared, range(own, own + max(0, count - block * len(asked.block_ids)))), count))


def heart_request(asked: WorkloadRequest, number: int, name: str, adapters: int = 0) -> Request:
    """Returns the request that a scheduler is given. number: is unique in the run, and alone decides the request's
    invented output.

    adapters: the number of adapters. The request uses one, which is drawn at random from `number`. Pages are shared
    only within an adapter.
    """
    adapter = Draws(number).below(adapters) if adapters else -1
    return Request(
        request_id=name,
        group_id=name,
        prompt_token_ids=prompt_tokens(asked, number),
        params=GREEDY_SCORED if asked.scored else GREEDY,
        seed=number,
        max_tokens=asked.output_tokens,
        end_token_ids=NO_ENDS,
        arrival_s=asked.arrival_s,
        priority=asked.priority,
        cache_salt=f"adapter {adapter}" if adapters else "",
        adapter=adapter,
    )
