"""One running driver. It is asked with a line of JSON and answers with one."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from twostroke.lab.bench.peers.peer import Peer
from twostroke.types.errors import TwostrokeError


class PeerFault(TwostrokeError):
    """A driver ended early or answered with an error."""


class Missing(PeerFault):
    """The engine, or its driver, does not offer the case."""


class Session:
    """The process of a driver, the program that runs one engine for `bench compare`. Each command and each answer is a
    line of JSON. Use as a context manager; leaving it ends the process."""

    def __init__(self, peer: Peer, python: Path, variables: Mapping[str, str], log: Path) -> None:
        self.peer = peer
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [str(python), str(peer.driver_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(variables),
            text=True,
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, command: str, timeout_s: float = 1800.0, **arguments: Any) -> Any:
        """Returns the value of one command. Raises Missing where the engine does not offer the case, PeerFault for
        other faults."""
        if self._process.stdin is None or self._process.stdout is None:
            raise PeerFault(f"{self.peer.title} has no pipes.")
        watch = threading.Timer(timeout_s, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            raise PeerFault(f"{self.peer.title} ended during {command}.", why=f"Its output is in {self._log.name}.")
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(f"{self.peer.title}: {answer['missing']}.")
        if "error" in answer:
            raise PeerFault(f"{self.peer.title} failed at {command}.", why=answer["error"])
        return answer["value"]

    def peak_bytes(self) -> int:
        """Returns the largest resident size of the process so far in bytes; 0 where the system gives no figure."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.exists():
            return 0
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(fields["VmHWM"].split()[0]) * 1024 if "VmHWM" in fields else 0

    def close(self) -> None:
        """Ends the process; closing twice is harmless."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
