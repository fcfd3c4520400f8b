"""Starts members as child processes of this machine, and connects to members that listen on other machines."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from twostroke.distributed.ranks.line import RankLine, RankLineLost
from twostroke.system import here
from twostroke.system.starting import apart
from twostroke.types.errors import BackendError

END_S, LOST_END_S, LAST_WORDS_S = 5.0, 1.0, 2.0
CONNECT_S, RETRY_S = 60.0, 0.2
Address = tuple[str, int]


@dataclass(eq=False)
class LocalMembers:
    """The member processes on this machine, and the memory that all ranks share. descriptor: the file descriptor of
    that memory."""

    descriptor: int
    first_rank: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, places: Sequence[tuple[int, ...]], command: Sequence[str], environment: Mapping[str, str]
    ) -> list[RankLine]:
        """Starts a process for each entry of `places`, and returns a connection to each. An entry lists the CPUs on
        which the process runs; an empty one allows all.

        command: the command of each process; --line-fd and --memory-fd are added to it.
        """
        lines = []
        for cpus in places:
            own, other = socket.socketpair()
            with other:
                fds = (other.fileno(), self.descriptor)
                words = [*command, "--line-fd", str(fds[0]), "--memory-fd", str(fds[1])]
                with here.beginning_on(cpus):
                    streams = {"stdin": subprocess.DEVNULL, "stdout": sys.stderr}
                    started = apart(partial(here.start_child, words, fds, env=environment, **streams))
            self.processes.append(started)
            lines.append(RankLine(own))
        return lines

    def describe(self, rank: int) -> str:
        """Returns how a member's process ended; empty where it has not ended."""
        try:
            code = self.processes[rank - self.first_rank].wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return ""
        return (
            f"its process was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"its process ended with code {code}"
        )

    def close(self, wait_s: float = END_S) -> None:
        """Waits until the processes have ended, which they do when their connections are closed. Kills those that still
        run after wait_s. Closing twice is harmless."""
        until = time.monotonic() + wait_s
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def shared_memory(num_bytes: int) -> int:
    """Returns the file descriptor of new shared memory, which child processes may inherit. Pages of it that nobody
    touches take no memory."""
    return here.memory_file("twostroke-ranks", num_bytes)


def connect(address: Address, secret: bytes, rank: int, wait_s: float = CONNECT_S) -> RankLine:
    """Returns a connection to a member on another machine. Tries again until the member listens or wait_s is over.
    Raises BackendError."""
    until = time.monotonic() + wait_s
    where = f"rank {rank} at {address[0]}:{address[1]}"
    while True:
        try:
            line = RankLine(socket.create_connection(address, timeout=max(0.1, until - time.monotonic())))
            line.prove(secret, leads=True)
            return line
        except RankLineLost as error:
            raise BackendError(f"The greeting with {where} failed.", why=f"{error}.") from error
        except OSError as error:
            if time.monotonic() + RETRY_S > until:
                raise BackendError(
                    f"Nothing answers for {where}.", why=f"{error}.", fix="Start `twostroke rank` there first."
                ) from error
            time.sleep(RETRY_S)
