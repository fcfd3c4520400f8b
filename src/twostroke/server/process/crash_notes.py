"""A page of memory that a supervisor and its worker share: the running requests, and the requests that were running at
earlier crashes.

The worker writes the fingerprints of a step's requests before native code begins and removes them after it. Nothing is
sent, so nothing can be lost when the process crashes. The supervisor reads them afterwards, while no worker runs. Times
are those of time.monotonic, which all processes of a machine share.

    | count | fingerprints of the running step | table: fingerprint, crashes, until |
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable

from msgspec import Struct

from twostroke.system import here

PRINT_BYTES = 16
MOST_RUNNING = 1024
MOST_RECORDS = 256
REFUSED_CRASHES = 2
SUSPECT_S = 1800.0
REFUSED_S = 600.0
_COUNT = struct.Struct("<I")
_RECORD = struct.Struct(f"<{PRINT_BYTES}sQd")
_TABLE_AT = _COUNT.size + 12 + MOST_RUNNING * PRINT_BYTES
_PRINTS_AT = _COUNT.size + 12
SIZE_BYTES = _TABLE_AT + MOST_RECORDS * _RECORD.size


class Record(Struct, frozen=True):
    """A request that was running at one or more crashes. crashes: how many. until_s: the time when the record is
    forgotten, on the clock time.monotonic."""

    crashes: int
    until_s: float

    @property
    def refused(self) -> bool:
        """True when the request was running during REFUSED_CRASHES crashes or more."""
        return self.crashes >= REFUSED_CRASHES


class CrashNotes:
    """The page of memory that the supervisor and its workers share. It holds the fingerprints of the requests in the
    worker's present step, and a count of crashes for each request that was running at a crash. descriptor: the page's
    file descriptor; None makes memory that no other process sees."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = bytearray(SIZE_BYTES) if descriptor is None else mmap.mmap(descriptor, SIZE_BYTES)

    def running(self, prints: Iterable[bytes]) -> None:
        """Called before a step: writes the fingerprints of the requests that the step computes. Those beyond
        MOST_RUNNING are left out."""
        self.idle()
        kept = list(prints)[:MOST_RUNNING]
        joined = b"".join(kept)
        self._memory[_PRINTS_AT : _PRINTS_AT + len(joined)] = joined
        self.again(len(kept))

    def again(self, count: int) -> None:
        """Called before a step that computes the same requests as the step before it. Sets only the number of running
        requests, because their fingerprints are still in the page."""
        _COUNT.pack_into(self._memory, 0, count)

    def idle(self) -> None:
        """Called after a step: nothing is computed now."""
        _COUNT.pack_into(self._memory, 0, 0)

    def records(self, now_s: float) -> dict[bytes, Record]:
        """Returns the records of requests that were running at a crash and are not forgotten yet, by fingerprint."""
        found = (_RECORD.unpack_from(self._memory, place) for place in _places())
        return {key: Record(crashes, until_s) for key, crashes, until_s in found if crashes and until_s > now_s}

    def clear(self, fingerprint: bytes) -> None:
        """Forgets a request that ran to its end without a crash."""
        for place in _places():
            key, crashes, _ = _RECORD.unpack_from(self._memory, place)
            if key == fingerprint and crashes:
                _RECORD.pack_into(self._memory, place, key, 0, 0.0)

    def crashed(self, now_s: float) -> list[bytes]:
        """Called by the supervisor after a worker has crashed: each request that was running then gets one more crash.
        Returns the fingerprints that are refused from now on.

        When the table is full, the requests with the fewest crashes are forgotten first, and of these the oldest.
        """
        (count,) = _COUNT.unpack_from(self._memory, 0)
        at = range(_PRINTS_AT, _PRINTS_AT + min(count, MOST_RUNNING) * PRINT_BYTES, PRINT_BYTES)
        ran = {bytes(self._memory[place : place + PRINT_BYTES]) for place in at}
        records = self.records(now_s)
        for key in ran:
            crashes = 1 + (records[key].crashes if key in records else 0)
            records[key] = Record(crashes, now_s + (REFUSED_S if crashes >= REFUSED_CRASHES else SUSPECT_S))
        kept = sorted(records.items(), key=lambda item: (item[1].crashes, item[1].until_s))[-MOST_RECORDS:]
        self._write(kept)
        self.idle()
        return sorted(key for key, record in kept if key in ran and record.refused)

    def _write(self, kept: list[tuple[bytes, Record]]) -> None:
        self._memory[_TABLE_AT:SIZE_BYTES] = bytes(SIZE_BYTES - _TABLE_AT)
        for place, (key, record) in zip(_places(), kept, strict=False):
            _RECORD.pack_into(self._memory, place, key, record.crashes, record.until_s)


def new_page() -> int:
    """Returns the file descriptor of new shared memory for CrashNotes, filled with zeros. It is an unnamed file where
    the system has no such memory."""
    return here.memory_file("twostroke-crash-notes", SIZE_BYTES)


def _places() -> range:
    return range(_TABLE_AT, SIZE_BYTES, _RECORD.size)
