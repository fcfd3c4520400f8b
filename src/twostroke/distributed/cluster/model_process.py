"""Runs one replica as a child process that reports its progress of loading and the reason for its end. Another module
decides whether it is started again.

The child inherits a listening socket of its own and one end of a pipe. Each line of the pipe is a JSON object, see
`ProcessReport`. When the pipe ends, the process ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from twostroke.distributed.cluster.keeper import NOT_STARTED
from twostroke.system import here
from twostroke.types.reading.decoders import json_decoder

KILLED_AFTER_S = 30.0
"""The seconds after which a process that was asked to end is killed. It may write its pages to the disk for 15 s of
them."""
MOST_LINE_BYTES = 64 * 1024


class ProcessReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report of the process. done, total: the bytes that are loaded, and those that will be. listens: whether fronts
    may call it now. error: the reason for which it ends."""

    done: int = 0
    total: int = 0
    listens: bool = False
    error: str = ""


class ProcessEnd(msgspec.Struct, frozen=True):
    """The end of the process. code: the exit code, below zero for a signal. why: its last error, in words."""

    code: int
    why: str = ""


Command = Callable[[int, int], Sequence[str]]
"""(listening descriptor, descriptor for reports) -> the command."""
Heard = Callable[[ProcessReport | ProcessEnd], None]
_reports = json_decoder(ProcessReport)


class ModelProcess:
    """A replica's process, which starts when the object is made. heard: called in a thread of its own, with each
    ProcessReport of the process, and with a ProcessEnd when the process has ended."""

    def __init__(
        self, name: str, command: Command, environment: Mapping[str, str], heard: Heard, host: str = "127.0.0.1"
    ) -> None:
        self._heard = heard
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=64)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, args=(command, environment), name=name, daemon=True)
        self._begun = threading.Event()
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The number of the process; None where it could not be started."""
        self._begun.wait()
        return None if self._process is None else self._process.pid

    def drain(self) -> None:
        """Asks the process to end when nothing runs in it."""
        self._begun.wait()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """Kills the process."""
        self._begun.wait()
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Ends the process: asks it first, and kills it if it does not end in time. Closing twice is harmless."""
        self.drain()
        if self._process is not None:
            try:
                self._process.wait(KILLED_AFTER_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._thread.join()

    def _run(self, command: Command, environment: Mapping[str, str]) -> None:
        reading, writing = os.pipe()
        listening = self._listener.fileno()
        words, passed = command(listening, writing), (listening, writing)
        try:
            self._process = here.start_child(words, passed, env=environment, stdout=sys.stderr)
        except OSError as error:  # no memory or no process is left
            os.close(reading)
            self._ended(NOT_STARTED, f"Its process cannot be started: {error}.")
            return
        finally:
            os.close(writing)
            self._listener.close()
            self._begun.set()
        why = ""
        with open(reading, "rb") as lines:
            for line in iter(lambda: lines.readline(MOST_LINE_BYTES), b""):
                with contextlib.suppress(msgspec.MsgspecError):  # the end of the process may have cut this line
                    report = _reports.decode(line)
                    why = report.error or why
                    self._heard(report)
        self._ended(self._process.wait(), why)

    def _ended(self, code: int, why: str) -> None:
        self._heard(ProcessEnd(code, why))
