"""Keeps replicas on this machine as child processes: starts them, starts them again when they end, and ends them with
the front.

Each child inherits a listening socket, so that its address stays the same when it is started again.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twostroke.system import here

FIRST_DELAY_S, MOST_DELAY_S, STEADY_S = 0.25, 30.0, 60.0
END_S = 10.0
FINAL_CODES = frozenset({2, 3, 4, 5})
"""Exit codes of a replica that would end in the same way again: wrong options, model, memory, kernels."""

NOT_STARTED = 1

Command = Callable[[str, int], list[str]]
"""A function that returns the command line that starts a replica. Called with the replica's name and the number of its
listening file descriptor."""


@dataclass(eq=False, slots=True)
class _Kept:
    """One replica. cpus: the CPUs that it runs on; empty for any. failed: the exit code of a replica that will not be
    started again; None while it may run."""

    name: str
    listener: socket.socket
    cpus: tuple[int, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    failed: int | None = None


class LocalKeeper:
    """Keeps `count` replicas running as child processes, with one thread for each. say: writes a line to the log. host:
    the address on which the replicas listen. places: the CPUs that each replica runs on; empty for any."""

    def __init__(
        self,
        count: int,
        command: Command,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        host: str = "127.0.0.1",
        places: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self._command, self._environment, self._say = command, dict(environment), say
        self._ending = threading.Event()
        cpus = places or [()] * count
        self._kept = [_Kept(f"replica-{index}", _listener(host), cpus[index]) for index in range(count)]
        self._threads = [
            threading.Thread(target=self._keep, args=(kept,), name=kept.name, daemon=True) for kept in self._kept
        ]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses on which the replicas listen."""
        return [kept.listener.getsockname()[:2] for kept in self._kept]

    @property
    def failed(self) -> int | None:
        """Returns the first replica's exit code when all replicas have ended and none will be started again; None while
        one may run."""
        codes = [kept.failed for kept in self._kept]
        return codes[0] if all(code is not None for code in codes) else None

    def start(self) -> None:
        """Starts the threads, each of which starts one replica and watches it."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends all replicas: asks them first, and kills those that do not end. Closing twice is harmless."""
        self._ending.set()
        for kept in self._kept:
            if kept.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    kept.process.terminate()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(END_S)
        for kept in self._kept:
            if kept.process is not None and kept.process.poll() is None:
                kept.process.kill()
                kept.process.wait()
            kept.listener.close()

    def _keep(self, kept: _Kept) -> None:
        delay_s = FIRST_DELAY_S
        while not self._ending.is_set():
            began_s = time.monotonic()
            code = self._run(kept)
            if self._ending.is_set():
                return
            if code in FINAL_CODES:
                kept.failed = code
                return
            delay_s = FIRST_DELAY_S if time.monotonic() - began_s > STEADY_S else min(MOST_DELAY_S, 2 * delay_s)
            self._say(f"{kept.name} has ended with code {code}; it starts again in {delay_s:g} s")
            self._ending.wait(delay_s)

    def _run(self, kept: _Kept) -> int:
        """Runs the replica once and returns its exit code."""
        descriptor = kept.listener.fileno()
        command = self._command(kept.name, descriptor)
        try:
            with here.beginning_on(kept.cpus):
                kept.process = here.start_child(
                    command, (descriptor,), env=self._environment, stdout=sys.stderr
                )
        except OSError as error:  # no memory or no process is left
            self._say(f"{kept.name} cannot be started: {error}")
            return NOT_STARTED
        return kept.process.wait()


def _listener(host: str) -> socket.socket:
    return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64)
