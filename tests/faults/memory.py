"""A memory that remembers what was written where, and tokens that depend on everything that is read from it.

If a page is shared wrongly, freed too early or written twice, some sequence reads it and notices at once. The same
holds for a state that belongs to another sequence or position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from twostroke.engine.executor import Executor
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.types.cache_pools import CachePools, window_pages
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult

VOCAB_SIZE = 50
ZEROS = 0
"""The state before the first token."""

Place = tuple[int, int, int]
"""A group, a page and an offset."""


def begin(salt: str) -> int:
    """The chain before the first token. Salts differ, so that pages shared between them are noticed."""
    return crc32(salt.encode())


def link(chain: int, token_id: int) -> int:
    """The chain with one more token. It takes the place of the K and V of that position."""
    return hash((chain, token_id))  # a hash of whole numbers is the same in every process


def token_behind(request: Request, known: Sequence[int]) -> int:
    """The token that follows the known tokens of a request."""
    chain = begin(request.cache_salt)
    for token_id in known:
        chain = link(chain, token_id)
    return token_after(request.seed, chain)


def token_after(seed: int, chain: int) -> int:
    """The next token: a function of the seed and of all tokens before."""
    return hash((seed, chain)) % VOCAB_SIZE


class Memory:
    """Chains by group, page and offset, and by slot of states. `next_token` reads the last position's chain from the
    memory, not from the plan. lives: whether a request has not ended. A plan in flight for a request that has ended is
    not checked, but its results are written."""

    def __init__(self, page_tokens: int, pools: CachePools, lives: Callable[[Request], bool] = lambda _: True) -> None:
        self._page_tokens = page_tokens
        self._pools = pools
        self._lives = lives
        self._slots: dict[Place, int] = {}
        self._states: dict[int, int] = {}
        self._chains: dict[int, tuple[Request, list[int]]] = {}  # keys are identities, because ids may come again

    def run(self, plan: Plan) -> None:
        """Writes what is planned. Raises AssertionError where earlier results are not there any more."""
        for source, target in plan.state_copies:
            self._states[target] = self._states[source] if source >= 0 else ZEROS
        for group, source, target in plan.page_copies:
            for offset in range(self._page_tokens):
                self._copy((group, source, offset), (group, target, offset))
        written: set[Place] = set()
        for planned in plan.sequences:
            name, chain = planned.request.request_id, self._rows(planned)
            for group, position in self._read(planned) if self._lives(planned.request) else ():
                found = self._slots.get(self._place(planned, group, position))
                assert found == chain[position], f"position {position} of {name} was lost"
            for place in self._written(planned):
                assert place not in written, f"two sequences of step {plan.step_id} write page {place[1]}"
                written.add(place)
            self._check_state(planned, chain)
        slots = [planned.state_slot for planned in plan.sequences if planned.state_slot >= 0]
        assert len(slots) == len(set(slots)), f"two sequences of step {plan.step_id} have one state"
        for planned in plan.sequences:
            chain = self._rows(planned)
            for position in range(planned.start, planned.start + planned.num_tokens):
                for group in range(len(self._pools.pages)):
                    self._slots[self._place(planned, group, position)] = chain[position]
            self._states[planned.state_slot] = chain[planned.start + planned.num_tokens - 1]

    def next_token(self, planned: PlannedSequence, place: int) -> int:
        """The token that follows the known tokens and `place` tokens of the draft."""
        last = planned.start + planned.num_tokens - planned.sampled_rows + place
        if not self._pools.pages:
            return token_after(planned.request.seed, self._rows(planned)[last])  # `_check_state` checked its inputs
        return token_after(planned.request.seed, self._slots[self._place(planned, 0, last)])

    def last_chain(self, planned: PlannedSequence) -> int:
        """The chain that its last row saw."""
        last = planned.start + planned.num_tokens - 1
        if not self._pools.pages:
            return self._rows(planned)[last]
        return self._slots[self._place(planned, 0, last)]

    def _copy(self, source: Place, target: Place) -> None:
        self._slots.pop(target, None)
        if source in self._slots:
            self._slots[target] = self._slots[source]

    def _check_state(self, planned: PlannedSequence, chain: Sequence[int]) -> None:
        assert (planned.state_slot >= 0) == (self._pools.state_slots > 0)
        if planned.state_slot >= 0:
            expected = chain[planned.start - 1] if planned.start else ZEROS
            found = self._states.get(planned.state_slot)
            assert found == expected, f"{planned.request.request_id} has the state of another position"

    def _read(self, planned: PlannedSequence) -> Iterator[tuple[int, int]]:
        """(group, position) of what was written before and is seen by some row."""
        assert len(planned.tables) == len(self._pools.pages)
        for group, pool in enumerate(self._pools.pages):
            first = max(0, planned.start - pool.window + 1) if pool.window else 0
            for position in range(first, planned.start):
                yield group, position

    def _written(self, planned: PlannedSequence) -> Iterator[Place]:
        for group, pool in enumerate(self._pools.pages):
            for position in range(planned.start, planned.start + planned.num_tokens):
                yield self._place(planned, group, position)
            held = sum(page_id >= 0 for page_id in planned.tables[group])
            most = window_pages(pool.window, planned.num_tokens, self._page_tokens)
            assert not pool.window or held <= most, f"{held} pages are held, and {most} suffice"

    def _place(self, planned: PlannedSequence, group: int, position: int) -> Place:
        page_id = planned.tables[group][position // self._page_tokens]
        assert page_id >= 0, f"position {position} of {planned.request.request_id} was given back"
        return group, page_id, position % self._page_tokens

    def _rows(self, planned: PlannedSequence) -> list[int]:
        """The chain up to the last planned position, with guesses."""
        draft = planned.draft_token_ids
        end = planned.start + planned.num_tokens
        chain = self._chain(planned.request, planned.known_token_ids, end - len(draft))
        if not draft:
            return chain
        chain = chain[: end - len(draft)]
        for token_id in draft:
            chain.append(link(chain[-1], token_id))
        return chain

    def _chain(self, request: Request, known: Sequence[int], length: int) -> list[int]:
        chain: list[int] = []  # another beam's tokens may replace a beam's tokens
        if not request.steered:
            _, chain = self._chains.setdefault(id(request), (request, chain))
        while len(chain) < length:
            chain.append(link(chain[-1] if chain else begin(request.cache_salt), known[len(chain)]))
        return chain


class Watched:
    """Calls `watch` with each plan of the scheduler, between schedule and commit."""

    def __init__(self, inner: Executor, watch: Callable[[Plan], None]) -> None:
        self._inner = inner
        self._watch = watch

    def execute(self, plan: Plan) -> StepResult:
        """The result of the inner executor."""
        self._watch(plan)
        return self._inner.execute(plan)


class CheckedExecutor:
    """Checks each plan, or part of one, against limits and memory before it is run."""

    def __init__(self, inner: Executor, memory: Memory, limits: SchedulerLimits) -> None:
        self._inner = inner
        self._memory = memory
        self._limits = limits

    def execute(self, plan: Plan) -> StepResult:
        """The result of the inner executor."""
        assert 0 < plan.num_tokens <= self._limits.max_step_tokens
        assert 0 < len(plan.sequences) <= self._limits.max_sequences
        drafted = sum(len(planned.draft_token_ids) for planned in plan.sequences)
        assert drafted == plan.num_draft_tokens <= self._limits.max_draft_tokens
        for planned in plan.sequences:
            known, end = len(planned.known_token_ids), planned.start + planned.num_tokens
            assert planned.num_tokens > 0 and planned.samples == (end - len(planned.draft_token_ids) == known)
            if planned.role is Role.DECODE:
                again = known - 1 - planned.start  # rows of a step whose state went back; no guesses after them
                assert known > len(planned.request.prompt_token_ids)
                goes_back = planned.state_slot >= 0 and not planned.draft_token_ids
                assert again >= 0 if goes_back else again == 0 and planned.samples
            else:
                assert not planned.draft_token_ids
        self._memory.run(plan)
        return self._inner.execute(plan)
