"""The engine for asyncio: one thread steps, event loops wait.

    callers' loops --commands (submit, abort)--> [lock + condition] --> step thread
    callers' loops <--one wakeup per loop and step-- call_soon_threadsafe <-- step thread

Native kernels release the GIL, so loops go on while a step runs. A slow reader holds up no other stream: its pieces
wait in its own mailbox, which is bounded in bytes. A reader that lets its mailbox overflow loses its request.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from twostroke.cost.history.ledger import Ledger
from twostroke.engine.answers.collect import Collector
from twostroke.engine.answers.reader import StreamReader
from twostroke.engine.answers.reader_watch import ReaderWatch
from twostroke.engine.faults.alarm import Alarm
from twostroke.engine.session import Session
from twostroke.types.errors import BackendError, EngineStopped, InvalidRequest, TwostrokeError
from twostroke.types.grammar import TokenMask
from twostroke.types.output import Delta, GenerationOutput, Prompt

MAX_UNREAD_BYTES = 256 * 1024
_RETRY_S = 0.05  # seconds between attempts when there is work but no plan


class _Parked(Struct, frozen=True):
    """A command that pauses or resumes a request."""

    request_id: str
    parked: bool


Command = StreamReader | str | _Parked
_Mail = list[tuple[StreamReader, Delta]]
_Post = deque[tuple[float, _Mail]]  # steps whose pieces were sent to a loop and are not delivered yet


class Steps(Protocol):
    """The interface that an engine drives: a Stepper, or a front with replicas."""

    clock: Callable[[], float]
    report_fault: Callable[[BaseException], None]

    @property
    def session(self) -> Session:
        """The Session, which takes requests and makes the pieces of their answers."""

    @property
    def has_work(self) -> bool:
        """True while `step` has something to do."""

    def gauges(self) -> Any:
        """Returns the present numbers of running and waiting requests and of pages, as scheduler.gauges.Gauges."""

    def submit(self, prompt: Prompt, arrival_s: float | None = None) -> str:
        """Queue a prompt and return its request id."""

    def abort(self, request_id: str) -> list[Delta]:
        """End a request now."""

    def step(self) -> list[Delta] | None:
        """Run one step and return its pieces; None when nothing can be done now."""


class AsyncEngine:
    """Runs the engine for asyncio. Any number of tasks, on any number of loops, may use one engine.

    The stepper belongs to the step thread from `start` on. An exception that ends the engine goes to the stepper's
    `report_fault`. max_unread_bytes: the most bytes of one stream's pieces that its reader has not taken yet. alarm:
    the alarm that wakes the step thread when it is rung, because the stepper has work then.
    """

    def __init__(self, stepper: Steps, max_unread_bytes: int = MAX_UNREAD_BYTES, alarm: Alarm | None = None) -> None:
        self._stepper = stepper
        self._max_unread_bytes = max_unread_bytes
        self._session = stepper.session
        self._changed = threading.Condition()
        # Only the step thread touches these two: the reader of each request, and the pieces that each loop has not got
        # yet.
        self._mailed: dict[str, StreamReader] = {}
        self._posts: WeakKeyDictionary[asyncio.AbstractEventLoop, _Post] = WeakKeyDictionary()
        # Everything below is guarded by `_changed`.
        self._commands: deque[Command] = deque()
        self._streams: dict[str, StreamReader] = {}  # keys are request ids; a closed stream's id is free at once
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._gauges = stepper.gauges()
        if alarm is not None:
            alarm.listen(self._wake_up)

    @property
    def ledger(self) -> Ledger:
        """The accounts of completions that have ended, and the last steps."""
        return self._session.ledger

    @property
    def alive(self) -> bool:
        """True while the step thread runs and takes requests."""
        thread = self._thread
        return thread is not None and thread.is_alive() and not self._stopping

    def gauges(self) -> Any:
        """The numbers of running and waiting requests and of pages after the last step or command (`Steps.gauges`)."""
        return self._gauges

    def check(self, prompt: Prompt) -> None:
        """Raise what `stream` would raise for this prompt before its first piece."""
        self._session.check(prompt)

    def room(self, prompt_tokens: int) -> int:
        """Returns how many output tokens a prompt of `prompt_tokens` tokens leaves room for; below 1 when the prompt
        does not fit."""
        return self._session.limits.most_tokens - prompt_tokens

    async def prepare(self, prompt: Prompt) -> Prompt:
        """Do the first part of `stream`: check the prompt and compile its grammar. Raises InvalidRequest, Overloaded.
        """
        self._session.check(prompt)
        future = self._session.compiling(prompt)
        if future is None:
            return prompt
        masks: tuple[TokenMask, ...] = await asyncio.wrap_future(future)
        return replace(prompt, masks=masks)

    async def start(self) -> None:
        """Start the step thread. Raises EngineStopped for an engine that was started before."""
        with self._changed:
            if self._thread is not None:
                raise EngineStopped("The engine was started before.", fix="Make a new one.")
            self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """End the step thread after its present step. Streams that are open raise EngineStopped."""
        with self._changed:
            self._stopping = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def open(self, prompt: Prompt, wake: Callable[[], None]) -> StreamReader:
        """Queue a prepared prompt and return the reader of its answer's pieces, on this event loop. The caller must
        close the reader in any case.

        Raises EngineStopped, InvalidRequest. The reader raises the same errors as `stream`.
        """
        arrival_s = self._stepper.clock()  # not when the step thread takes the request: that wait is queueing too
        watch = ReaderWatch(self._stepper.clock, self._session.ledger.accounts)
        with self._changed:
            if not self.alive:
                raise EngineStopped("The engine is not running.", fix="Start it, or start it again.")
            loop = asyncio.get_running_loop()
            stream = StreamReader(self._named(prompt), loop, arrival_s, wake, watch, self._close, self._park)
            self._streams[stream.request_id] = stream
            self._command(stream)
        return stream

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        """Yields the pieces of all n completions, as they come.

        Raises InvalidRequest before the first piece, EngineStopped when the engine ends, and UnreadOverflow when pieces
        come faster than they are taken and the mailbox is full. Closing the iterator or cancelling the task aborts the
        request; its pages are free before the next step is planned.
        """
        ready = asyncio.Event()
        reader = self.open(await self.prepare(prompt), ready.set)
        try:
            while not reader.done:
                ready.clear()
                while (delta := reader.take()) is not None:
                    yield delta
                reader.rest()
                if not reader.done:
                    await ready.wait()
        finally:
            reader.close()

    async def generate(self, prompt: Prompt) -> GenerationOutput:
        """Returns all completions when they have ended. A completion that failed has FinishReason.ERROR and its error.
        """
        collector = Collector(prompt)
        async for delta in self.stream(prompt):
            collector.add(delta)
        return collector.output()

    def abort(self, request_id: str) -> None:
        """End a request: its stream gets its last pieces with FinishReason.ABORT. Unknown ids change nothing."""
        self._command(request_id)

    def _command(self, command: Command) -> None:
        """Queue a command for the step thread: submit a stream, abort a request id, or park a request."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()

    def _wake_up(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _named(self, prompt: Prompt) -> Prompt:
        if prompt.request_id in self._streams:
            raise InvalidRequest(f"A request with the id {prompt.request_id!r} is running.", param="request_id")
        named = self._session.named(prompt)
        while named.request_id in self._streams:
            named = self._session.named(prompt)
        return named

    def _close(self, stream: StreamReader) -> None:
        """Close a stream. Commands are taken in order, so its request is gone before another one with the same id comes
        in."""
        with self._changed:
            if self._streams.get(stream.request_id) is stream:
                del self._streams[stream.request_id]
                self._command(stream.request_id)

    def _park(self, stream: StreamReader, parked: bool) -> None:
        if self._streams.get(stream.request_id) is stream:
            self._command(_Parked(stream.request_id, parked))

    def _deliver(self, loop: asyncio.AbstractEventLoop, post: _Post) -> None:
        """Put pieces into the mailboxes of their readers; runs on the readers' loop. A loop that is late gets the
        pieces of several steps at once, and each reader is woken once for all its pieces."""
        woken: dict[StreamReader, None] = {}
        for _ in range(len(post)):  # not `while post`: a device may produce faster than this loop delivers
            sent_s, mail = post.popleft()
            for stream, delta in mail:
                stream.put(sent_s, delta, self._max_unread_bytes)
                woken[stream] = None
        if post:
            loop.call_soon(self._deliver, loop, post)
        for stream in woken:
            stream.wake()

    # The methods from here on run in the step thread.

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._take_commands()
                deltas = self._stepper.step() if self._stepper.has_work else []
                self._gauges = self._stepper.gauges()
                self._send(deltas or [])
                if deltas is None:
                    with self._changed:
                        self._changed.wait(_RETRY_S)
        except BaseException as error:
            self._stepper.report_fault(error)
        finally:
            self._end()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do. Returns False when the engine stops."""
        with self._changed:
            while not (self._stopping or self._commands or self._stepper.has_work):
                self._changed.wait()
            return not self._stopping

    def _take_commands(self) -> None:
        """Carry out the commands in the order in which they came."""
        with self._changed:
            commands, self._commands = self._commands, deque()
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, StreamReader):
            self._submit(command)
        elif isinstance(command, _Parked):
            self._session.park(command.request_id, command.parked)
        else:
            self._send(self._stepper.abort(command))
            self._mailed.pop(command, None)

    def _submit(self, stream: StreamReader) -> None:
        self._mailed[stream.request_id] = stream
        try:
            self._stepper.submit(stream.prompt, stream.arrival_s)
        except TwostrokeError as error:
            self._fail(stream, error)
        except Exception as error:
            self._stepper.report_fault(error)
            self._fail(stream, BackendError("The request could not be queued."))

    def _send(self, deltas: list[Delta]) -> None:
        """Hand pieces to their streams. Each loop is woken once, however many streams it has. A loop that has not taken
        the pieces of the step before is not woken again."""
        if not deltas:
            return
        sent_s = self._stepper.clock()
        by_loop: dict[asyncio.AbstractEventLoop, _Mail] = {}
        for delta in deltas:
            stream = self._mailed[delta.request_id]
            by_loop.setdefault(stream.loop, []).append((stream, delta))
        for loop, mail in by_loop.items():
            post = self._posts.setdefault(loop, deque())
            post.append((sent_s, mail))
            if len(post) > 1:  # the delivery under way takes this entry, too
                continue
            try:
                loop.call_soon_threadsafe(self._deliver, loop, post)
            except RuntimeError:  # that loop is closed: nobody will read these streams
                post.clear()
                for stream, _ in mail:
                    self._close(stream)

    def _fail(self, stream: StreamReader, error: TwostrokeError) -> None:
        try:
            stream.loop.call_soon_threadsafe(stream.fail, error)
        except RuntimeError:  # as in _send
            self._close(stream)

    def _end(self) -> None:
        """Abort all requests and end every stream. Nothing runs after this call."""
        with self._changed:
            self._stopping = True
            streams = list(self._streams.values())
        for stream in streams:
            self._fail(stream, EngineStopped("The engine stopped while the request was running."))
        try:
            for request_id in self._mailed:
                self._stepper.abort(request_id)
            self._gauges = self._stepper.gauges()
        except Exception as error:  # the scheduler itself may be broken
            self._stepper.report_fault(error)
