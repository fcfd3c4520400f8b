"""One call on the engine: the pieces of all its prompts merged into one queue, and everything given back at the end.

Knows: the engine's stream, the call, metrics.
Must not know: JSON, sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import TracebackType

from twostroke.server.calls import Call
from twostroke.server.errors import EngineFault, HttpProblem, fault_of
from twostroke.server.facts import RequestFacts
from twostroke.server.gate.door import Ticket
from twostroke.server.gate.quarantine import Stay
from twostroke.server.gate.refusals import DEADLINE
from twostroke.server.parts import ServerParts
from twostroke.server.visit import Visit
from twostroke.types.errors import EngineStopped, InvalidRequest
from twostroke.types.output import Delta, Prompt

QUEUE_PIECES = 1  # a reader that is behind stops the pump, so that the engine can tell its delay


@dataclass(frozen=True, slots=True)
class _Piece:
    place: int
    delta: Delta


class _End:
    """One prompt's stream is over."""


class Generation:
    """`async with Generation(call, parts, facts) as g: while (piece := await g.next(timeout_s)): ...`

    Leaving the block closes the engine's streams, which aborts whatever still runs.
    """

    def __init__(self, call: Call, parts: ServerParts, facts: RequestFacts, visit: Visit | None = None) -> None:
        self.call = call
        self._facts = facts
        self._reasons: dict[int, str] = {}
        self._parts = parts
        self._visit = visit or Visit()
        self._ticket: Ticket | None = None
        self._stay: Stay | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._cached = [0] * len(call.prompts)
        self._queue: asyncio.Queue[_Piece | _End | Exception] = asyncio.Queue(QUEUE_PIECES)
        self._pumps: list[asyncio.Task[None]] = []
        self._live = len(call.prompts)
        self._tokens = [0] * call.num_choices
        self._other_tokens = 0  # of answers that were not chosen
        self._open = set(range(call.num_choices))

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache, summed over prompts; final when all is finished."""
        return sum(self._cached)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far, those inside a stop string included."""
        return sum(self._tokens) + self._other_tokens

    async def __aenter__(self) -> Generation:
        """Start. Raises EngineStopped, HttpProblem (422, 429, 503, 504), InvalidRequest for a grammar."""
        if not self._parts.engine.alive:
            raise EngineStopped("The engine is not running.")
        if self._visit.deadline_s is not None:
            left_s = self._visit.deadline_s - self._parts.door.clock()
            if left_s <= 0:
                raise HttpProblem(DEADLINE)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._expire)
        try:
            self._ticket = self._parts.door.enter(self._visit, self.call.num_answers, self.call.num_prompt_tokens)
            prompts = await self._prepared()
            self._stay = await self._admitted(prompts)
        except BaseException:
            self._give_back()
            raise
        self._parts.metrics.prompt_tokens.inc(self.call.num_prompt_tokens)
        for prompt in prompts:
            self._parts.metrics.requests.asked(prompt, self._parts.context_tokens)
        self._pumps = [asyncio.create_task(self._pump(i, prompt)) for i, prompt in enumerate(prompts)]
        return self

    async def _prepared(self) -> list[Prompt]:
        """The prompts with their grammars compiled, before the first one is queued."""
        try:
            return [await self._parts.engine.prepare(prompt) for prompt in self.call.prompts]
        except InvalidRequest as error:
            raise self._in_the_clients_words(error) from None

    def _in_the_clients_words(self, error: InvalidRequest) -> InvalidRequest:
        if error.param == "grammar":
            error.param = self.call.grammar_field
        return error

    async def _admitted(self, prompts: list[Prompt]) -> Stay:
        """At once, but for requests that ran at a crash: those take turns, or are refused."""
        deadline_s, clock = self._visit.deadline_s, self._parts.door.clock
        try:
            async with asyncio.timeout(None if deadline_s is None else deadline_s - clock()):
                return await self._parts.quarantine.enter(prompts)
        except TimeoutError:
            raise HttpProblem(DEADLINE) from None
        except HttpProblem as refusal:
            self._parts.door.refusals[refusal.problem.code or ""] += 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the engine's streams and wait until that is done."""
        try:
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)
        finally:
            self._give_back()
        facts = self._facts
        facts.response_id, facts.prompt_tokens = self.call.response_id, self.call.num_prompt_tokens
        facts.cached_tokens, facts.output_tokens = self.cached_tokens, self.completion_tokens
        facts.finish_reasons = tuple(reason for _, reason in sorted(self._reasons.items()))

    async def next(self, timeout_s: float | None = None) -> tuple[int, Delta] | None:
        """The next piece as (choice index, delta), None after the last.

        Raises what the engine raised, TimeoutError, and HttpProblem (504) once the deadline has passed.
        """
        while self._live:
            if self._expired:
                raise HttpProblem(DEADLINE)
            async with asyncio.timeout(timeout_s):
                item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            if isinstance(item, _Piece):
                return self._take(item.place, item.delta)
            self._live -= not self._expired
        if self._open:
            raise EngineFault(f"The engine's stream ended with {len(self._open)} completions unfinished.")
        return None

    def _give_back(self) -> None:
        if any(prompt.params.grammar is not None for prompt in self.call.prompts):
            self._parts.lanes.trimmer.heavy_work_ended()  # a machine may have held much
        if self._timer is not None:
            self._timer.cancel()
        if self._stay is not None:
            self._stay.leave(answered=not self._open)
        if self._ticket is not None:
            self._ticket.leave(self.completion_tokens)

    def _expire(self) -> None:
        """The deadline is here: the engine's work ends now, whether or not anybody reads."""
        self._expired = True
        for pump in self._pumps:
            pump.cancel()
        if not self._queue.full():
            self._queue.put_nowait(_End())

    def _take(self, place: int, delta: Delta) -> tuple[int, Delta]:
        fault = fault_of(delta)
        if isinstance(fault, InvalidRequest):
            raise self._in_the_clients_words(fault)
        if fault is not None:
            raise fault
        if self._ticket is not None:
            self._ticket.answered()
        choice = place * self.call.n + delta.index
        if delta.index == 0:
            # The other completions share the first one's prompt pages; those are no hits of earlier requests.
            self._cached[place] = delta.num_cached_tokens
        self._tokens[choice] = delta.num_output_tokens
        self._other_tokens += delta.num_other_tokens
        if delta.finish_reason is not None:
            self._open.discard(choice)
            self._reasons[choice] = delta.finish_reason.value
            siblings = range(place * self.call.n, (place + 1) * self.call.n)
            if self._open.isdisjoint(siblings):
                self._parts.metrics.requests.longest.observe(max(self._tokens[each] for each in siblings))
            if choice == 0:
                self._facts.timings = delta.timings
        return choice, delta

    async def _pump(self, place: int, prompt: Prompt) -> None:
        deltas = self._parts.engine.stream(prompt)
        try:
            async for delta in deltas:
                await self._queue.put(_Piece(place, delta))
            await self._queue.put(_End())
        except Exception as error:
            await self._queue.put(error)
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()  # not left to the garbage collector: this is what frees the pages
