"""Two threads for parts (cached pages of K and V, states). One writes parts to the disk and never delays its caller;
the other reads parts and checks their digests."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from twostroke.engine.disk.contract import QUEUED_BYTES, DiskAnswer, DiskReading, DiskWriting, size_of
from twostroke.engine.disk.store import DiskStore


class DiskWriter:
    """Satisfies PartWriter: its thread writes pages and states to the disk. begin: called once in the thread, before
    its work."""

    def __init__(self, store: DiskStore, begin: Callable[[], None]) -> None:
        self._store, self._begin = store, begin
        self._changed = threading.Condition()
        self._queue: deque[DiskWriting] = deque()
        self._queued_bytes, self._busy, self._ending = 0, False, False
        self._thread = threading.Thread(target=self._run, name="kv-disk-writer", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """True while fewer than QUEUED_BYTES bytes wait to be written. The next batch may exceed this number."""
        return self._queued_bytes < QUEUED_BYTES and not self._ending

    @property
    def idle(self) -> bool:
        with self._changed:
            return not (self._queue or self._busy)

    def give(self, writing: DiskWriting) -> None:
        with self._changed:
            self._queue.append(writing)
            self._queued_bytes += size_of(writing.parts)
            self._changed.notify_all()

    def wait_room(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room, seconds)

    def flush(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.idle, seconds)

    def close(self) -> None:
        """End after the present file; writings that wait are dropped."""
        with self._changed:
            self._ending = True
            self._queue.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        self._begin()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ending)
                if self._ending:
                    return
                writing, self._busy = self._queue.popleft(), True
            try:
                self._store.stay(writing.files, writing.stay_s)
                self._store.write(writing.parts, writing.stay_s)
            finally:
                with self._changed:
                    self._busy = False
                    self._queued_bytes -= size_of(writing.parts)
                    self._changed.notify_all()


class DiskReader:
    """Satisfies PartReader: its thread reads cached pages and states from the disk. Each DiskReading has one answer.
    The caller asks for no second DiskReading with the same `key` before the first has its answer."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._asked: deque[DiskReading] = deque()
        self._answers: deque[DiskAnswer] = deque()
        self._owed: set[int] = set()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="kv-disk-reader", daemon=True)
        self._thread.start()

    def ask(self, reading: DiskReading) -> None:
        with self._changed:
            self._asked.append(reading)
            self._owed.add(reading.key)
            self._changed.notify_all()

    def owes(self, key: int) -> bool:
        with self._changed:
            return key in self._owed

    def take(self, seconds: float = 0.0) -> list[DiskAnswer]:
        with self._changed:
            if seconds:
                self._changed.wait_for(lambda: self._answers or self._ending, seconds)
            found = list(self._answers)
            self._answers.clear()
            return found

    def close(self) -> None:
        """End the reader after the part that it reads at present."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._ending)
                if self._ending:
                    return
                reading = self._asked.popleft()
            answer = self._read(reading)
            with self._changed:
                self._answers.append(answer)
                self._owed.discard(answer.key)
                self._changed.notify_all()

    def _read(self, reading: DiskReading) -> DiskAnswer:
        begun_s = time.perf_counter()
        found: list[bytes] = []
        for part, place in reading.parts:
            data = None if self._ending else self._store.read(part, place)
            if data is None:
                break
            found.append(data)
        seconds = time.perf_counter() - begun_s
        self._store.used(list(dict.fromkeys(part.file for part, _ in reading.parts[: len(found)])))
        return DiskAnswer(reading.key, tuple(found), seconds)
