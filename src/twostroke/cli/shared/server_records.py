"""Records of this user's running servers: each leaves a record while it serves, so that `ps`, `run`, `stop`, `top`
and `explain` find it.

    <cache>/servers/<process id>.json

A record counts as long as its process runs. The process is known by its id and by its start time, because the system
uses ids again. Any command that finds records of ended processes removes them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from twostroke.system import here
from twostroke.types.reading.decoders import json_decoder
from twostroke.weights.store.whole_file import write_whole

SERVERS = "servers"
"""The part of the cache folder that belongs to this module."""


class ServerRecord(Struct, frozen=True):
    """The record of one server. pid: the process to end, which is the supervisor where there is one. began: the start
    time of this process, in the system's units. names: the names by which requests may call its models. model: the
    model that was asked for at its start."""

    pid: int
    began: str
    url: str
    model: str
    names: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """Whether the recorded process runs and belongs to this user."""
        return began_of(self.pid) == self.began != ""


_DECODER = json_decoder(ServerRecord)


def began_of(pid: int) -> str:
    """Returns the start time of a process of this user; "" where no such process runs."""
    with contextlib.suppress(OSError, IndexError):
        if os.stat(f"/proc/{pid}").st_uid == here.user_number():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return "" if fields[0] == "Z" else fields[19]
    return ""


def numbered_here() -> bool:
    """Returns whether /proc has the process numbers that this process uses. A process in a PID namespace may see the
    /proc of another namespace, where its number belongs to a stranger."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self") == str(os.getpid())
    return False


def running_servers(folder: Path) -> list[ServerRecord]:
    """Returns the running servers of this user, in the order in which they began."""
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


def local_servers() -> list[ServerRecord]:
    """Returns this user's running servers on this machine, in the order in which they began."""
    from twostroke.assembly.settings.env import read_machine

    return running_servers(read_machine().cache_folder / SERVERS)


class OwnRecord:
    """The file that tells other commands of this user about this process's server. Where it cannot be written, serving
    continues without it.

    The file is named by this process's id: a supervisor may have several workers, one after the other.
    """

    def __init__(self, folder: Path, record: ServerRecord) -> None:
        self._path, self._record = folder / f"{os.getpid()}.json", record
        self._lock, self._ended = threading.Lock(), False
        self.rename(record.names)

    def rename(self, names: Sequence[str]) -> None:
        """Replaces the names in the record. Any thread may call this. The call writes to a disk."""
        with self._lock, contextlib.suppress(OSError):
            if not self._ended:
                self._record = msgspec.structs.replace(self._record, names=tuple(names))
                write_whole(self._path, msgspec.json.encode(self._record).decode())

    def end(self) -> None:
        """Removes the file of this record. Later calls of `rename` do not write it again."""
        with self._lock, contextlib.suppress(OSError):
            self._ended = True
            self._path.unlink()


@contextlib.contextmanager
def recorded(folder: Path, pid: int, url: str, model: str, names: Sequence[str]) -> Iterator[OwnRecord]:
    """Keeps a record of this server until the block ends. `ps`, `run` and `stop` find the server by this record. pid:
    the process that `stop` ends. names: the names under which the server serves models. Where /proc belongs to another
    PID namespace, the record has no start time, so that `stop` ends no stranger."""
    began = began_of(pid) if numbered_here() else ""
    record = OwnRecord(folder, ServerRecord(pid, began, url, model, tuple(names)))
    try:
        yield record
    finally:
        record.end()


def _read(path: Path) -> ServerRecord | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return _DECODER.decode(path.read_bytes())
    return None
