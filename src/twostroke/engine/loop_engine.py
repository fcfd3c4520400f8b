"""The engine for asyncio when nothing is computed in this process: the event loop itself takes the pieces that have
come.

It is for an API server whose models run in other processes. With a step thread each token would cost two switches of
threads and a wakeup of the loop, which is most of such a server's work.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from twostroke.engine.async_engine import MAX_UNREAD_BYTES, AsyncEngine, Command, Steps
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta

LOOK_S = 0.1


class PolledSteps(Steps, Protocol):
    """A stepper (the object that runs an engine's steps) whose results come over sockets: the event loop waits for a
    file descriptor, and then polls."""

    def fileno(self) -> int:
        """Returns a file descriptor that is readable while `poll` has something to take."""

    def poll(self) -> list[Delta]:
        """Take the results that have come, without waiting, and return the pieces for readers. It is also called every
        LOOK_S seconds, even when nothing has come."""


class LoopEngine(AsyncEngine):
    """An AsyncEngine without a step thread: it runs on the event loop that starts it. `open` may be called only on that
    loop; `abort` and `gauges` anywhere."""

    def __init__(self, stepper: PolledSteps, max_unread_bytes: int = MAX_UNREAD_BYTES) -> None:
        super().__init__(stepper, max_unread_bytes)
        self._polled = stepper
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        return self._loop is not None and not self._stopping

    def gauges(self) -> object:
        """Returns the stepper's present counts of requests and pages, for metrics."""
        return self._stepper.gauges()

    async def start(self) -> None:
        if self._loop is not None:
            raise EngineStopped("The engine was started before.", fix="Make a new one.")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._polled.fileno(), self._turn)
        self._look()

    async def stop(self) -> None:
        self._end()

    def abort(self, request_id: str) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._carry_out, request_id)

    def _command(self, command: Command) -> None:
        self._carry_out(command)

    def _look(self) -> None:
        """Poll every LOOK_S seconds, so that the stepper can act when nothing comes, for example on a timeout."""
        self._turn()
        if self._loop is not None and not self._stopping:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _turn(self) -> None:
        try:
            deltas = self._polled.poll()
        except Exception as error:
            self._stepper.report_fault(error)
            self._end()
            return
        if not deltas:
            return
        sent_s = self._stepper.clock()
        mail = [(self._mailed[delta.request_id], delta) for delta in deltas]  # a full mailbox ends its request later
        for stream, delta in mail:
            stream.put(sent_s, delta, self._max_unread_bytes)
        for stream in dict.fromkeys(stream for stream, _ in mail):
            stream.wake()

    def _end(self) -> None:
        if self._loop is None or self._stopping:
            return
        self._loop.remove_reader(self._polled.fileno())
        if self._timer is not None:
            self._timer.cancel()
        super()._end()
