"""Connects the engine's loop with the disk. Between steps it takes in pages that were read, and copies pages that are
to be written; when the engine stops, it writes the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.cache.holdings import SequenceCache
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.disk.contract import DiskCounts, DiskSides
from twostroke.engine.disk.fetching import CameBack, DiskFetching
from twostroke.engine.disk.parts import PartMemory
from twostroke.engine.disk.saving import DiskSaving

WAIT_S = 0.02
"""The longest wait for the disk when nothing else can be computed, in seconds. A request that comes meanwhile may wait
as long."""
COPY_S, FLUSH_S = 5.0, 10.0
"""The longest waits at the end, in seconds: for room in the writer's queue, and for the writer's last file."""


class DiskPages:
    """Reads the cached pages of new prompts from a disk, so that they need not be computed, and writes the pages of
    ended requests. Only the thread that runs steps may use it. disk: the real one or a simulated one. trusted(seconds):
    returns True when the weights are known to be undamaged; before that, nothing is written."""

    def __init__(
        self,
        cache: CacheManager,
        memory: PartMemory,
        disk: DiskSides,
        price: DiskPrice,
        clock: Callable[[], float],
        trusted: Callable[[float], bool],
    ) -> None:
        self._store, self._reader, self._writer, self._price = disk.store, disk.reader, disk.writer, price
        self._size = cache.page_tokens
        self._fetching = DiskFetching(cache, memory, disk.store, disk.reader, price, clock)
        self._saving = DiskSaving(cache, memory, disk.store, disk.writer, price, trusted)
        self._prompts: dict[str, int] = {}  # number of full pages of each prompt, by request id
        self._wishes: dict[str, float] = {}
        cache.closing = self._closing

    @property
    def counts(self) -> DiskCounts:
        """Counts of bytes read and written, damaged and lost pages, refused prompts and removed files. Any thread may
        read them."""
        return self._store.counts

    @property
    def rate(self) -> float:
        """The speed of readings in bytes a second, as measured so far. Any thread may read it."""
        return self._price.rate

    @property
    def settled(self) -> bool:
        """True when everything that should be written is written. Any thread may read it."""
        return not self._saving.pending and self._writer.idle

    @property
    def reading(self) -> bool:
        """True while a request waits for the disk."""
        return len(self._fetching) > 0

    @property
    def has_work(self) -> bool:
        """True while pages are being read for paused requests, or pages of ended requests are still to be written."""
        return self.reading or self._saving.pending

    def wish(self, request_id: str, disk_s: float) -> None:
        """Notes how long the disk is to keep a new request's pages. disk_s: the additional seconds, compared with other
        pages; below zero, the pages are not written."""
        if disk_s:
            self._wishes[request_id] = disk_s

    def begin(self, request_id: str, salt: str, keys: Sequence[int], *, may_skip: bool) -> bool:
        """Begin to read pages for a new request. Returns True when pages are being read; the caller then pauses the
        request. may_skip: True when cached positions may be left out of the request's computation."""
        self._prompts[request_id] = len(keys) // self._size
        return may_skip and self._fetching.begin(request_id, salt, keys)

    def cancel(self, request_id: str) -> None:
        """Forget a request that is over."""
        self._prompts.pop(request_id, None)
        self._wishes.pop(request_id, None)
        self._fetching.cancel(request_id)

    def between_steps(self, idle: bool) -> list[CameBack]:
        """Take in what was read, copy some of what should be written, and return the requests whose pages have come.
        idle: True when nothing can be computed before the disk answers."""
        answers = self._reader.take(WAIT_S if idle and self.reading else 0.0) if self.reading else []
        self._saving.go_on(idle)
        return self._fetching.take(answers)

    def close(self) -> None:
        """Write what is left, and end the threads. No step comes after this call."""
        self._saving.finish(COPY_S, FLUSH_S)
        self._writer.close()
        self._reader.close()

    def _closing(self, sequence_id: str, holding: SequenceCache) -> None:
        stay_s = self._wishes.get(sequence_id, 0.0)
        if stay_s >= 0:
            self._saving.ended(holding, self._prompts.get(sequence_id, 0), stay_s)
