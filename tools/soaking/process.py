"""Runs the server under test as a process of its own, and reads its figures from the system."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from twostroke.assembly.settings.env import process_environment

from .verdict import Sample

SOURCE = Path(__file__).resolve().parents[2] / "src"
STOP_S = 60.0
PROGRAM = "import sys; from twostroke.cli.main import main; sys.argv[0] = 'twostroke'; main()"


class Server:
    """`with Server.start(...) as server`: a server that has not stopped is killed at the end of the block."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    @classmethod
    def start(cls, model: str, threads: int, streams: int, extra: tuple[str, ...] = ()) -> Server:
        """Starts a server with a small queue and a small KV cache, so that refusals, preemptions and evictions happen.
        """
        flags: tuple[str, ...] = ("--port", "0", "--json", "--threads", str(threads), "--max-sequences", str(streams))
        flags += ("--queued-requests", str(2 * streams), "--kv-memory", "3MB", "--deadline", "60s", "--drain", "20s")
        command = [sys.executable, "-c", PROGRAM, "serve", model, *flags, *extra]
        environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        lines = ""
        for line in process.stdout:
            lines += line
            with contextlib.suppress(ValueError):
                return cls(process, urlsplit(json.loads(lines)["url"]).port or 0)
        raise SystemExit(f"the server did not start: {process.wait()}")

    def sample(self) -> Sample:
        """Returns the memory, the descriptors and the threads of the process and its children."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        memory = descriptors = threads = 0
        for pid in pids:
            with contextlib.suppress(OSError):
                fields = dict(
                    line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
                )
                memory += 1024 * int(fields["VmRSS"].split()[0])
                threads += int(fields["Threads"])
                descriptors += len(os.listdir(f"/proc/{pid}/fd"))
        return Sample(memory, descriptors, threads)

    def stop(self) -> tuple[int, int]:
        """Ends the server with SIGTERM. Returns the exit code and the number of its processes that still exist."""
        family = [self.process.pid, *descendants(self.process.pid)]
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_S)
        return code, sum(Path(f"/proc/{pid}").exists() for pid in family)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()


def descendants(pid: int) -> list[int]:
    """Returns the ids of all processes below this one."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found
