"""Runs one call on the engine: yields the pieces of the answers to all its prompts as they come, and releases
everything at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType

from twostroke.engine.answers.reader import StreamReader
from twostroke.server.answering.lazy_timer import LazyTimer
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

MOST_AT_ONCE = 32
"""The number of pieces that are taken before the event loop does other work."""


class Generation:
    """Runs one call on the engine: `async with Generation(call, parts, facts) as g: while (piece := await
    g.next(timeout_s)): ...`

    `take` returns a piece that is there already. With `listen` the task does not have to run for each piece. Leaving
    the block closes the engine's streams, which aborts whatever still runs.
    """

    def __init__(self, call: Call, parts: ServerParts, facts: RequestFacts, visit: Visit | None = None) -> None:
        self.call = call
        self._facts = facts
        self._reasons: dict[int, str] = {}
        self._parts = parts
        self._visit = visit or Visit()
        self._ticket: Ticket | None = None
        self._answered = False
        self._held = ExitStack()  # callbacks that give back all that this request holds
        self._fault: Exception | None = None  # a fault of the deadline or of the receiver; the task raises it
        self._cached = [0] * len(call.prompts)
        self._readers: list[tuple[int, StreamReader]] = []  # (a prompt's place, its reader) of each reader not done
        self._waiter: asyncio.Future[bool] | None = None
        self._receiver: Callable[[], bool] | None = None
        self._timeout_s: float | None = None
        self._silence = LazyTimer(partial(self._wake, False))
        self._at_once = 0
        self._tokens = [0] * call.num_choices
        self._total_tokens = 0  # includes tokens of answers that were not chosen
        self._open = set(range(call.num_choices))
        self._kept: list[int] | None = None  # the answer's tokens, when a slot keeps them at the end
        if parts.serving.slots is not None and call.slot is not None and call.num_choices == 1:
            self._kept = []

    @property
    def cached_tokens(self) -> int:
        """The prompt tokens found in the prefix cache, summed over prompts; final when all prompts are finished."""
        return sum(self._cached)

    @property
    def completion_tokens(self) -> int:
        """The number of tokens generated so far, including those inside a stop string."""
        return self._total_tokens

    async def __aenter__(self) -> Generation:
        """Starts the call. Raises EngineStopped, HttpProblem (422, 429, 503, 504), InvalidRequest for a grammar."""
        if not self._parts.serving.engine.alive:
            raise EngineStopped("The engine is not running.")
        with ExitStack() as held:
            prompts = await self._admit(held)
            held.callback(self._close_readers)
            for place, prompt in enumerate(prompts):
                self._readers.append((place, self._parts.serving.engine.open(prompt, self._news)))
            self._held = held.pop_all()
        self._parts.telemetry.metrics.prompt_tokens.inc(self.call.num_prompt_tokens)
        for prompt in prompts:
            self._parts.telemetry.metrics.requests.asked(prompt, self._parts.serving.context_tokens)
        return self

    async def _admit(self, held: ExitStack) -> list[Prompt]:
        """Returns the prompts, ready for the engine. held: gets the callbacks that release everything that the request
        has taken so far."""
        if any(prompt.params.grammar is not None for prompt in self.call.prompts):
            held.callback(self._parts.admission.lanes.trimmer.heavy_work_ended)  # a grammar may have taken much memory
        if self._visit.deadline_s is not None:
            left_s = self._visit.deadline_s - self._parts.admission.door.clock()
            if left_s <= 0:
                raise HttpProblem(DEADLINE)
            held.callback(asyncio.get_running_loop().call_later(left_s, self._expire).cancel)
        door, answers = self._parts.admission.door, self.call.num_answers
        ticket = self._ticket = door.enter(self._visit, answers, self.call.num_prompt_tokens)
        held.callback(lambda: ticket.leave(self.completion_tokens))
        prompts = await self._prepared()
        stay = await self._admitted(prompts)
        held.callback(lambda: stay.leave(answered=not self._open))
        return prompts

    async def _prepared(self) -> list[Prompt]:
        """Returns the prompts with their grammars compiled, before the first one is queued."""
        try:
            return [await self._parts.serving.engine.prepare(prompt) for prompt in self.call.prompts]
        except InvalidRequest as error:
            raise self._in_the_clients_words(error) from None

    def _in_the_clients_words(self, error: InvalidRequest) -> InvalidRequest:
        if error.param == "grammar":
            error.param = self.call.grammar_field
        return error

    async def _admitted(self, prompts: list[Prompt]) -> Stay:
        """Waits until the quarantine admits the prompts; only prompts that were running at a crash wait or are refused.
        Returns an object whose `leave` must be called at the end of this generation."""
        deadline_s, clock = self._visit.deadline_s, self._parts.admission.door.clock
        try:
            async with asyncio.timeout(None if deadline_s is None else deadline_s - clock()):
                return await self._parts.admission.quarantine.enter(prompts)
        except TimeoutError:
            raise HttpProblem(DEADLINE) from None
        except HttpProblem as refusal:
            self._parts.admission.door.refusals[refusal.problem.code or ""] += 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the engine's streams."""
        self._silence.close()
        self._held.close()
        slots = self._parts.serving.slots
        if self._kept is not None and slots is not None and self.call.slot is not None:
            slots.ended(self.call.slot, self.call.prompts[0], self._kept)
        facts = self._facts
        facts.response_id, facts.prompt_tokens = self.call.response_id, self.call.num_prompt_tokens
        facts.cached_tokens, facts.output_tokens = self.cached_tokens, self.completion_tokens
        facts.finish_reasons = tuple(reason for _, reason in sorted(self._reasons.items()))

    async def next(self, timeout_s: float | None = None) -> tuple[int, Delta] | None:
        """Returns the next piece as (choice index, delta); None after the last.

        Raises the engine's error, TimeoutError, and HttpProblem (504) once the deadline has passed.
        """
        while True:
            if (piece := self.take()) is not None:
                self._at_once += 1
                if self._at_once >= MOST_AT_ONCE:
                    self._at_once = 0
                    await asyncio.sleep(0)
                return piece
            if not self._readers:
                break
            await self._more(timeout_s)
        if self._open:
            raise EngineFault(f"The engine's stream ended with {len(self._open)} completions unfinished.")
        return None

    def listen(self, receiver: Callable[[], bool]) -> None:
        """Makes this object call `receiver` for new pieces while `next` waits; the receiver then calls `take`. When the
        receiver returns True, it has handled all pieces, and `next` waits on. `next` raises what the receiver raises.
        """
        self._receiver = receiver

    def take(self) -> tuple[int, Delta] | None:
        """Returns the next piece if it is there; None when `next` would wait, and after the last piece. Raises the
        errors of `next`."""
        if self._fault is not None:
            raise self._fault
        for each in self._readers:
            place, reader = each
            delta = reader.take()
            if reader.done:
                reader.close()
                self._readers = [other for other in self._readers if other is not each]
            if delta is not None:
                return self._take(place, delta)
        return None

    async def _more(self, timeout_s: float | None) -> None:
        """Waits until one of the engine's streams has a new piece. Raises TimeoutError."""
        self._at_once = 0
        self._timeout_s = timeout_s
        self._rest()
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            if not await waiter:
                raise TimeoutError
        finally:
            self._waiter = None
            self._silence.clear()

    def _wake(self, news: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(news)

    def _rest(self) -> None:
        """Called when all new pieces of the answer were handled. Starts anew the time after which `next` raises
        TimeoutError if no piece comes."""
        for _, reader in self._readers:
            reader.rest()
        if self._timeout_s is not None:
            self._silence.set(self._timeout_s)

    def _news(self) -> None:
        """Called when one of the engine's streams has a new piece and a task waits in `next`. Calls the function that
        was given to `listen`, which may handle the piece at once. Wakes the task where there is no such function, or
        where it returns False."""
        if self._waiter is None or self._waiter.done():
            return
        if self._receiver is not None:
            try:
                taken = self._receiver()
            except Exception as error:
                self._fault, taken = error, False
            if taken and self._readers:
                self._rest()
                return
        self._wake(True)

    def park(self, parked: bool) -> None:
        """Pauses the generation (True) or resumes it (False). Calling twice changes nothing."""
        for _, reader in self._readers:
            reader.park(parked)

    def _close_readers(self) -> None:
        """Ends this generation's requests in the engine; those that still run are aborted, which frees their pages."""
        for _, reader in self._readers:
            reader.close()

    def _expire(self) -> None:
        """Called at the deadline: ends the engine's work now, whether or not a client reads."""
        self._fault = HttpProblem(DEADLINE)
        self._close_readers()
        self._news()

    def _take(self, place: int, delta: Delta) -> tuple[int, Delta]:
        fault = None if delta.finish_reason is None else fault_of(delta)
        if isinstance(fault, InvalidRequest):
            raise self._in_the_clients_words(fault)
        if fault is not None:
            raise fault
        if self._ticket is not None and not self._answered:
            self._answered = True
            self._ticket.answered()
        choice = place * self.call.n + delta.index
        if delta.index == 0:
            # The other completions share the first completion's prompt pages; these are no hits from earlier requests.
            self._cached[place] = delta.num_cached_tokens
        self._total_tokens += delta.num_output_tokens - self._tokens[choice] + delta.num_other_tokens
        self._tokens[choice] = delta.num_output_tokens
        if self._kept is not None:
            self._kept += delta.token_ids
        if delta.finish_reason is not None:
            self._open.discard(choice)
            self._reasons[choice] = delta.finish_reason.value
            siblings = range(place * self.call.n, (place + 1) * self.call.n)
            if self._open.isdisjoint(siblings):
                self._parts.telemetry.metrics.requests.longest.observe(max(self._tokens[each] for each in siblings))
            if choice == 0:
                self._facts.timings = delta.timings
        return choice, delta
