"""Servers of this user that run now: each leaves a record while it serves, so that `ps`, `run` and `stop` find it.

    <cache>/servers/<process id>.json

A record counts as long as its process runs: the process is known by its id and by when it began, because ids are used
again. Records of processes that have ended are removed by whoever finds them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from twostroke.system import here
from twostroke.types.decoders import json_decoder
from twostroke.weights.store.whole_file import write_whole

SERVERS = "servers"
"""The part of the cache folder that is this module's."""


class ServerRecord(Struct, frozen=True):
    """pid: the process to end, which is the supervisor where there is one. began: when it began, in the system's own
    count. names: what requests may call its models. model: what was asked for at its start."""

    pid: int
    began: str
    url: str
    model: str
    names: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """Whether that process runs, and is this user's."""
        return began_of(self.pid) == self.began != ""


_DECODER = json_decoder(ServerRecord)


def began_of(pid: int) -> str:
    """When a process of this user began; "" where none of that id runs."""
    with contextlib.suppress(OSError, IndexError):
        if os.stat(f"/proc/{pid}").st_uid == here.user_number():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return "" if fields[0] == "Z" else fields[19]
    return ""


def running_servers(folder: Path) -> list[ServerRecord]:
    """The servers of this user that run, in the order in which they began."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("*.json")):
            record = _read(path)
            if record is not None and record.runs:
                found.append(record)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
    return sorted(found, key=lambda record: int(record.began))


@contextlib.contextmanager
def recorded(folder: Path, pid: int, url: str, model: str, names: Sequence[str]) -> Iterator[None]:
    """A record of this server until the block ends; none where it cannot be written, because serving goes on without
    it. It has the name of this process: several workers of one supervisor follow one another."""
    path = folder / f"{os.getpid()}.json"
    record = ServerRecord(pid, began_of(pid), url, model, tuple(names))
    with contextlib.suppress(OSError):
        write_whole(path, msgspec.json.encode(record).decode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _read(path: Path) -> ServerRecord | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return _DECODER.decode(path.read_bytes())
    return None
