"""A parent process that keeps the listening socket and starts another worker when one crashes.

The worker is the whole server as a process of its own. Whatever native code does, a crash ends the running requests and
nothing else. Their connections end without a last chunk, so no client takes that for a whole answer. The socket stays
open, the stand-in answers 503 with Retry-After, and a new worker takes over (ADR 11).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from twostroke.server.process.crash_notes import REFUSED_S, CrashNotes, new_page
from twostroke.server.process.notify import Listener
from twostroke.server.process.stand_in import StandIn
from twostroke.system import here
from twostroke.system.starting import apart_async

FIRST_DELAY_S, MOST_DELAY_S = 0.25, 30.0
STEADY_S = 60.0
MOST_FAILED_STARTS = 5
SILENCE_S = 60.0
FINAL_CODES = frozenset({0, 2, 3, 4, 130})  # the worker ended as asked, or would end in the same way again
GIVEN_UP = 6

Command = Callable[[int, int, int], list[str]]
"""A function that returns the command line of a worker. Its arguments are the descriptors of the listening socket, of
the connection to the supervisor, and of the crash notes."""


@dataclass(slots=True)
class Backoff:
    """The delays between restarts of the worker: doubled each time, and short again after a worker that lasted."""

    crashes: int = 0

    def after(self, lasted_s: float) -> float:
        """Returns the seconds to wait now. lasted_s: how many seconds the worker was ready."""
        self.crashes = 1 if lasted_s >= STEADY_S else self.crashes + 1
        return min(MOST_DELAY_S, FIRST_DELAY_S * float(2 ** min(20, self.crashes - 1)))


@dataclass(slots=True)
class _Life:
    """The times of one worker process: when it was started, when it was ready, and when it last sent something."""

    started_s: float
    ready_s: float | None = None
    heard_s: float = 0.0


@dataclass(eq=False)
class Supervisor:
    """Starts the worker process, and another one when it crashes. say: writes a line to the log. tell: sends to the
    service manager, if any. silence_s: how many seconds a ready worker may be silent before it is considered hung.

    page: the crash notes (crash_notes), shared with all workers, one after another; closed at the end.
    """

    command: Command
    listener: socket.socket
    environment: Mapping[str, str]
    say: Callable[[str], None]
    tell: Listener
    silence_s: float = SILENCE_S
    restarts: int = 0
    page: int = field(default_factory=new_page)
    _stopping: bool = False
    _process: asyncio.subprocess.Process | None = None
    _start_s: float = 5.0  # seconds that the last start took
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> int:
        """Runs workers, one after another, until one ends without a crash, a signal stops the server, or too many fail
        to start. Returns the exit code for this process."""
        try:
            with here.signals_to(self._signal, (signal.SIGINT, signal.SIGTERM)):
                return await self._restarting()
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            os.close(self.page)

    def _signal(self, kind: signal.Signals) -> None:
        """Passes a signal on to the worker, which drains at the first signal and ends at the second."""
        if not self._stopping:
            self.tell.send(STOPPING="1", STATUS="finishing what runs")
        self._stopping = True
        self._wake.set()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(kind)

    async def _restarting(self) -> int:
        backoff, failed_starts = Backoff(), 0
        while True:
            life = _Life(time.monotonic())
            code = await self._one_life(life)
            if self._stopping or code in FINAL_CODES:
                return code if code >= 0 else 128 - code
            lasted_s = 0.0 if life.ready_s is None else time.monotonic() - life.ready_s
            failed_starts = failed_starts + 1 if life.ready_s is None else 0
            if failed_starts >= MOST_FAILED_STARTS:
                self.say(f"{failed_starts} workers in a row died before they were ready; giving up.")
                return GIVEN_UP
            delay_s = backoff.after(lasted_s)
            self.restarts += 1
            self._blame()
            self.say(f"worker ended: {how(code)}; restart {self.restarts} in {delay_s:g} s")
            self.tell.send(STATUS=f"restart {self.restarts}: {how(code)}")
            if await self._pause(delay_s):
                return 0

    def _blame(self) -> None:
        """Records, for the next worker, the requests that were computed when the worker crashed."""
        for key in CrashNotes(self.page).crashed(time.monotonic()):
            self.say(f"a request that was running at each crash is refused for {REFUSED_S:g} s: {key.hex()}")

    async def _pause(self, delay_s: float) -> bool:
        """Waits delay_s seconds before the next worker; requests are answered with 503 meanwhile. Returns True when a
        signal came instead."""
        due_s = time.monotonic() + delay_s
        async with StandIn(self.listener, lambda: self._retry_s(due_s)):
            while not self._stopping and (left_s := due_s - time.monotonic()) > 0:
                self.tell.send(WATCHDOG="1")  # the supervisor does not hang: it waits
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), min(1.0, left_s))
        return self._stopping

    def _retry_s(self, start_due_s: float) -> float:
        return max(0.0, start_due_s - time.monotonic()) + self._start_s

    async def _one_life(self, life: _Life) -> int:
        """Starts a worker, answers requests with 503 until it is ready, and waits for its end. Returns its exit code,
        -n for signal n."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            out = None if self.restarts == 0 else asyncio.subprocess.DEVNULL  # only the first worker prints
            passed = (self.listener.fileno(), theirs.fileno(), self.page)
            start = partial(asyncio.create_subprocess_exec, *self.command(*passed), pass_fds=passed, stdout=out)
            # Ctrl-C of a terminal must reach only the supervisor.
            self._process = await apart_async(partial(start, env=dict(self.environment)))
            theirs.close()
            hearing = asyncio.create_task(self._read_messages(ours, life))
            watching = asyncio.create_task(self._watch(life))
            try:
                return await self._process.wait()
            finally:
                for task in (hearing, watching):
                    task.cancel()
                await asyncio.gather(hearing, watching, return_exceptions=True)

    async def _read_messages(self, line: socket.socket, life: _Life) -> None:
        """Reads the worker's reports from the socket `line` until the worker closes it. Until the worker is ready,
        requests are answered with 503. The worker's watchdog messages are passed on to the service manager."""
        due_s = life.started_s
        async with StandIn(self.listener, lambda: self._retry_s(due_s)):
            while life.ready_s is None and await self._take(line, life):
                pass
        while await self._take(line, life):
            pass

    async def _take(self, line: socket.socket, life: _Life) -> bool:
        data = await asyncio.get_running_loop().sock_recv(line, 4096)
        life.heard_s = time.monotonic()
        if b"READY=1" in data and life.ready_s is None:
            life.ready_s = life.heard_s
            self._start_s = life.ready_s - life.started_s
            self.tell.send(
                READY="1", STATUS="serving" if not self.restarts else f"serving after {self.restarts} restarts"
            )
        if b"WATCHDOG=1" in data:
            self.tell.send(WATCHDOG="1")
        return bool(data)

    async def _watch(self, life: _Life) -> None:
        """Kills a ready worker that sends nothing for silence_s seconds, because it hangs in native code."""
        while True:
            await asyncio.sleep(min(1.0, self.silence_s / 4))
            if life.ready_s is None:
                self.tell.send(WATCHDOG="1")
            elif time.monotonic() - life.heard_s > self.silence_s and self._process is not None:
                self.say(f"the worker has said nothing for {self.silence_s:g} s: it is killed")
                self._process.kill()
                return


def how(code: int) -> str:
    """Returns how a process ended: "killed by SIGSEGV", "exit code 1"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
