"""A separate process that tries each grammar first, and that is killed where a grammar takes too much time or memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from twostroke.system import here
from twostroke.system.starting import apart, why_no_process
from twostroke.text.grammar.faults import in_users_terms
from twostroke.text.grammar.tokens import TrialTokens
from twostroke.types.errors import HelperNotStarted, InvalidRequest
from twostroke.types.grammar import GrammarKind

CHILD = Path(__file__).with_name("guard_child.py")
START_S = 60.0  # a busy machine may start a process slowly; no grammar is at work yet
_READ_BYTES = 65536


class GuardOpening(Struct, frozen=True):
    """The settings of the process that tries grammars, sent as its first message. trial: the part of the vocabulary
    that it uses. limits: the values of llguidance's LLParserLimits, by name. wall_s, memory_bytes: the most time and
    memory for a grammar. niceness: the process's niceness; 0 where it competes with the model's steps as an equal."""

    trial: TrialTokens
    end_token_ids: Sequence[int]
    limits: dict[str, Any]
    wall_s: float
    memory_bytes: int
    niceness: int = 0

    def line(self) -> bytes:
        """Returns the settings as a line of JSON, in the form that guard_child.py reads."""
        return _line(
            {
                "rows": self.trial.num_rows,
                "tokens": {token_id: token.hex() for token_id, token in self.trial.tokens.items()},
                "special": list(self.trial.special_ids),
                "ends": list(self.end_token_ids),
                "limits": self.limits,
                "wall_s": self.wall_s,
                "memory_bytes": self.memory_bytes,
                "niceness": self.niceness,
            }
        )


class TookTooMuch(InvalidRequest):
    """Raised when a grammar took too much time or memory."""


class GrammarGuard:
    """Compiles grammars on trial in a separate process; only one thread may use the object. The process starts with
    `start` or with the first grammar. After it was killed, it starts again with the next grammar."""

    def __init__(self, opening: GuardOpening) -> None:
        self._opening = opening
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process, so that the first grammar does not wait for it. Raises BackendError."""
        self._started()

    def source(self, kind: GrammarKind, text: str, limit_s: float) -> str:
        """Returns the grammar in llguidance's own language, after it has compiled within the limits.

        limit_s: the most seconds of processor time. Raises InvalidRequest, TookTooMuch.
        """
        process = self._started()
        answer = self._asked(process, {"kind": str(kind), "text": text, "cpu_s": limit_s}, self._opening.wall_s)
        if answer is None:
            self.close()
            raise TookTooMuch(
                f"The {kind.words} takes too much time or memory to compile.",
                param="grammar",
                why=f"It may take {self._opening.wall_s:g} s and {self._opening.memory_bytes / 2**20:,.0f} MiB.",
                fix="Make it simpler.",
            )
        if answer.get("fault"):
            raise InvalidRequest(f"The {kind.words} cannot be used: {in_users_terms(answer['fault'])}", param="grammar")
        return str(answer["source"])

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                _close(pipe)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        command = [sys.executable, "-P", str(CHILD)]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:  # Ctrl-C must reach only the parent, which ends this process when it is done
            process: subprocess.Popen[bytes] = apart(
                lambda **own: subprocess.Popen(command, bufsize=0, **streams, **own)
            )
        except OSError as error:
            raise _not_started(why_no_process(error)) from None
        self._process = process
        first = self._asked(process, _EASY, START_S) if self._write_line(process, self._opening.line()) else None
        if first is None or first.get("refused"):
            self.close()
            reason = f"the system does not let it limit itself ({first['refused']})" if first else "it ended"
            raise _not_started(f"{sys.executable} {CHILD}: {reason}.")
        return process

    def _asked(self, process: subprocess.Popen[bytes], job: dict[str, Any], limit_s: float) -> dict[str, Any] | None:
        """Sends a job to the process as one line. Returns the process's answer; None where the process ended or took
        too long."""
        if not self._write_line(process, _line(job)) or process.stdout is None:
            return None
        until_s, read = time.monotonic() + limit_s, b""
        while not read.endswith(b"\n"):
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not here.is_readable(process.stdout, left_s):
                return None
            piece = os.read(process.stdout.fileno(), _READ_BYTES)
            if not piece:
                return None
            read += piece
        answer: dict[str, Any] = json.loads(read)
        return answer

    def _write_line(self, process: subprocess.Popen[bytes], line: bytes) -> bool:
        try:
            if process.stdin is not None:
                process.stdin.write(line)
        except OSError:
            return False
        return True


def _not_started(why: str) -> HelperNotStarted:
    fix = "Ask without a grammar or schema, or let the container start processes and set their limits."
    return HelperNotStarted("The process that compiles grammars did not start.", why=why, fix=fix)


_EASY = {"kind": "json_schema", "text": '{"type": "object"}', "cpu_s": START_S}
"""The grammar that each new process compiles first, so that all that later grammars need is loaded."""


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:
        pass  # the pipe broke before, which is the reason for closing
