"""A KV memory that remembers what was written where, and tokens that depend on everything that is read from it.

A page that is shared wrongly, freed too early or written twice is read by some sequence: the reader sees it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from twostroke.engine.executor import Executor
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import Request
from twostroke.types.result import StepResult

VOCAB_SIZE = 50


def begin(salt: str) -> int:
    """The chain of no tokens. Salts differ, so that pages shared between them are noticed."""
    return crc32(salt.encode())


def link(chain: int, token_id: int) -> int:
    """The chain of one token more: stands for the K and V of its position."""
    return hash((chain, token_id))  # of whole numbers: the same in every process


def token_after(seed: int, chain: int) -> int:
    """The next token: a function of the seed and of all tokens before."""
    return hash((seed, chain)) % VOCAB_SIZE


class Memory:
    """Chains by page and slot. `next_token` reads the last position's chain from the pages, not from the plan."""

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._slots: dict[tuple[int, int], int] = {}
        self._chains: dict[int, tuple[Request, list[int]]] = {}  # by identity: ids may come again

    def run(self, plan: Plan) -> None:
        """Write what is planned; raise AssertionError where what was computed before is not there any more."""
        written: set[tuple[int, int]] = set()
        for planned in plan.sequences:
            end = planned.start + planned.num_tokens
            chain = self._chain(planned.request, planned.known_token_ids, end)
            for position in range(planned.start):
                found = self._slots.get(self._slot(planned.page_ids, position))
                assert found == chain[position], f"position {position} of {planned.request.request_id} was lost"
            for position in range(planned.start, end):
                slot = self._slot(planned.page_ids, position)
                assert slot not in written, f"two sequences of step {plan.step_id} write page {slot[0]}"
                written.add(slot)
        for planned in plan.sequences:
            chain = self._chains[id(planned.request)][1]
            for position in range(planned.start, planned.start + planned.num_tokens):
                self._slots[self._slot(planned.page_ids, position)] = chain[position]

    def next_token(self, planned: PlannedSequence) -> int:
        """What follows the last planned position."""
        last = planned.start + planned.num_tokens - 1
        return token_after(planned.request.seed, self._slots[self._slot(planned.page_ids, last)])

    def _slot(self, page_ids: Sequence[int], position: int) -> tuple[int, int]:
        return page_ids[position // self._page_tokens], position % self._page_tokens

    def _chain(self, request: Request, known: Sequence[int], length: int) -> list[int]:
        _, chain = self._chains.setdefault(id(request), (request, []))
        while len(chain) < length:
            chain.append(link(chain[-1] if chain else begin(request.cache_salt), known[len(chain)]))
        return chain


class CheckedExecutor:
    """Checks each plan against limits and memory before it is run; `watch` sees it between schedule and commit."""

    def __init__(self, inner: Executor, memory: Memory, limits: SchedulerLimits, watch: Callable[[Plan], None]) -> None:
        self._inner = inner
        self._memory = memory
        self._limits = limits
        self._watch = watch

    def execute(self, plan: Plan) -> StepResult:
        """The inner result."""
        assert 0 < plan.num_tokens <= self._limits.max_step_tokens
        assert 0 < len(plan.sequences) <= self._limits.max_sequences
        for planned in plan.sequences:
            end = planned.start + planned.num_tokens
            assert planned.num_tokens > 0 and planned.samples == (end == len(planned.known_token_ids))
        self._watch(plan)
        self._memory.run(plan)
        return self._inner.execute(plan)
