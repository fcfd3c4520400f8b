"""A disk in a simulation. Production code decides what is read and written, and each transfer takes predicted seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from twostroke.cost.disk_price import GREETING_S, DiskPrice
from twostroke.cost.shape import StepCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.disk.contract import (
    QUEUED_BYTES,
    DiskAnswer,
    DiskCounts,
    DiskReading,
    DiskSides,
    DiskWriting,
    size_of,
)
from twostroke.engine.disk.disk_pages import DiskPages
from twostroke.engine.disk.index import DiskIndex, DiskPart, FoundFile, leaving
from twostroke.engine.disk.parts import STATES
from twostroke.lab.sim.clock import VirtualClock


class SimulatedDisk(Struct, frozen=True):
    """The size and speed of a disk. limit_bytes: the most bytes that it keeps. read_rate, write_rate: bytes a second.
    copy_rate: bytes a second between the pool and a buffer, while no step is computed. page_bytes: the bytes of a page
    in each group of layers. state_bytes: the bytes of one state."""

    limit_bytes: int
    read_rate: float
    write_rate: float
    copy_rate: float
    page_bytes: tuple[int, ...]
    state_bytes: int = 0

    def attach(self, cache: CacheManager, cost: StepCost, step_tokens: int, clock: VirtualClock) -> AttachedDisk:
        """Makes an empty simulated disk for the pages of this cache. step_tokens: the token budget of a step. From it
        and `cost` the disk predicts how long it takes to compute pages instead of reading them."""
        store = _Store(self.limit_bytes, clock)
        reader, writer = _Reader(store, self.read_rate, clock), _Writer(store, self.write_rate, clock)
        store.settle = writer.settle
        sides, price = DiskSides(store, reader, writer), DiskPrice(cost, step_tokens)
        pages = DiskPages(cache, _Parts(self, clock), sides, price, clock, lambda _seconds: True)
        return AttachedDisk(pages, reader, writer)


class AttachedDisk(Struct, frozen=True):
    """A simulated disk with the cache of one replica."""

    pages: DiskPages
    reader: _Reader
    writer: _Writer

    @property
    def next_s(self) -> float:
        """The time at which the next transfer ends; infinity where there is none."""
        return min(self.reader.next_s, self.writer.next_s)


class _Parts:
    """The memory of pages and states, as the disk code sees it. Satisfies PartMemory. All bytes are zeros: only their
    number counts."""

    def __init__(self, disk: SimulatedDisk, clock: VirtualClock) -> None:
        self._disk, self._clock = disk, clock
        self._zeros = {number: bytes(size) for number, size in enumerate(disk.page_bytes)}
        self._zeros[STATES] = bytes(disk.state_bytes)

    def part_bytes(self, group: int) -> int:
        return len(self._zeros[group])

    def read_part(self, group: int, place: int) -> bytes:
        """Returns a part's bytes. The copy takes simulated time."""
        self._clock.advance(len(self._zeros[group]) / self._disk.copy_rate)
        return self._zeros[group]

    def write_part(self, group: int, place: int, data: bytes) -> None:
        """Takes simulated time for the copy and stores nothing."""
        self._clock.advance(len(data) / self._disk.copy_rate)


class _File(Struct):
    size: int
    used_s: float


class _Store:
    """Satisfies PartStore. A part is a page of K and V, or a state; its place is a hash of its tokens and of all tokens
    before them. Here the id of a part is its place. In production it is a hash of the place with a secret, because
    tokens could be guessed from places."""

    def __init__(self, limit_bytes: int, clock: VirtualClock) -> None:
        self.counts = DiskCounts()
        self.readable = self.writable = True
        self.settle: Callable[[], None] = lambda: None  # takes in the pages that are written by now
        self._limit, self._clock = limit_bytes, clock
        self._index = DiskIndex()
        self._files: dict[str, _File] = {}
        self._bytes = self._written = 0

    def part_id(self, place: bytes) -> bytes:
        return place

    def find(self, part_id: bytes) -> DiskPart | None:
        self.settle()
        return self._index.find(part_id)

    def add(self, writing: DiskWriting, at_s: float) -> None:
        """Adds a file whose writing has ended."""
        for name in writing.files:
            self.use(name, at_s + writing.stay_s)
        size = size_of(writing.parts)
        if not size:
            return
        if size > self._limit:
            self.counts.lost += len(writing.parts)
            return
        if self._bytes + size > self._limit:
            self._make_room(size)
        name, at, parts = f"{self._written}", 0, []
        for place, data in writing.parts:
            parts.append((place, DiskPart(name, at, len(data), b"")))
            at += len(data)
        self._index.add(name, parts)
        self._files[name] = _File(size, at_s + writing.stay_s)
        self._written += 1
        self._bytes += size
        self.counts.written_bytes += size

    def use(self, name: str, at_s: float) -> None:
        """Records that the file is used at this time, or that it should be kept until this time."""
        if name in self._files:
            self._files[name].used_s = max(self._files[name].used_s, at_s)

    def _make_room(self, size: int) -> None:
        """Removes the files that were used longest ago."""
        known = (FoundFile(name, file.size, int(1e9 * file.used_s)) for name, file in self._files.items())
        for file in leaving(known, self._limit, size):
            self._index.forget(file.name)
            self._bytes -= self._files.pop(file.name).size
            self.counts.removed_files += 1


class _Reader:
    """Reads files, one after the other. Satisfies PartReader."""

    def __init__(self, store: _Store, rate: float, clock: VirtualClock) -> None:
        self._store, self._rate, self._clock = store, rate, clock
        self._free_s = 0.0
        self._owed: deque[tuple[float, DiskReading, float]] = deque()

    @property
    def next_s(self) -> float:
        """The time of the next answer; infinity where no answer is due."""
        return self._owed[0][0] if self._owed else math.inf

    def ask(self, reading: DiskReading) -> None:
        seconds = GREETING_S + sum(part.num_bytes for part, _ in reading.parts) / self._rate
        self._free_s = max(self._free_s, self._clock()) + seconds
        self._owed.append((self._free_s, reading, seconds))

    def owes(self, key: int) -> bool:
        return any(reading.key == key for at_s, reading, _ in self._owed if at_s > self._clock())

    def take(self, seconds: float = 0.0) -> list[DiskAnswer]:
        """Returns the readings that have ended by now. A simulation's clock does not wait here."""
        found = []
        while self._owed and self._owed[0][0] <= self._clock():
            at_s, reading, took_s = self._owed.popleft()
            data = tuple(bytes(part.num_bytes) for part, _ in reading.parts)
            for part, _ in reading.parts:
                self._store.use(part.file, at_s)
            self._store.counts.read_bytes += sum(map(len, data))
            found.append(DiskAnswer(reading.key, data, took_s))
        return found

    def close(self) -> None:
        """Does nothing, because a simulated reader has no thread or file."""


class _Writer:
    """Satisfies PartWriter. Simulates that files are written one after the other, each in the time that its bytes
    take."""

    def __init__(self, store: _Store, rate: float, clock: VirtualClock) -> None:
        self._store, self._rate, self._clock = store, rate, clock
        self._free_s = 0.0
        self._queue: deque[tuple[float, DiskWriting]] = deque()
        self._queued_bytes = 0

    @property
    def next_s(self) -> float:
        """The time at which the next file has been written; infinity where no file waits."""
        return self._queue[0][0] if self._queue else math.inf

    @property
    def has_room(self) -> bool:
        self.settle()
        return self._queued_bytes < QUEUED_BYTES

    @property
    def idle(self) -> bool:
        self.settle()
        return not self._queue

    def give(self, writing: DiskWriting) -> None:
        size = size_of(writing.parts)
        self._free_s = max(self._free_s, self._clock()) + size / self._rate
        self._queue.append((self._free_s, writing))
        self._queued_bytes += size

    def wait_room(self, seconds: float) -> bool:
        return self.has_room

    def flush(self, seconds: float) -> bool:
        return self.idle

    def close(self) -> None:
        """Does nothing, because a simulated writer has no thread or file."""

    def settle(self) -> None:
        """Adds the files whose writing has ended by now to the store, where they can be found."""
        while self._queue and self._queue[0][0] <= self._clock():
            at_s, writing = self._queue.popleft()
            self._queued_bytes -= size_of(writing.parts)
            self._store.add(writing, at_s)
