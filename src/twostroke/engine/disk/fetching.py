"""Reads the pages of prompts from the disk while their requests are paused; other requests are computed meanwhile.

    begin(request) -> True when pages are read for the request, which the caller then pauses
    take(answers) -> requests that go on

Pages are put into the prefix tree between two steps, where the scheduler finds them as it finds any prefix. Pages that
are damaged, late or gone are computed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.cache.graft import Graft
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import page_places
from twostroke.engine.disk.contract import DiskAnswer, DiskReading, PartReader, PartStore
from twostroke.engine.disk.index import DiskPart
from twostroke.engine.disk.parts import STATES, PartMemory, longest_end, place_of

ASKED_BYTES = 8 << 20
"""The most bytes that are read together and put into the pool between two steps; at least one page is read."""
LEFT_SHARE = 8
"""Pages are read as long as more than one in LEFT_SHARE pages of the pool can be allocated."""
PATIENCE = 2.0
"""Reading a prompt may take PATIENCE times as long as computing it, or PATIENCE_S seconds if that is more. After that,
the prompt is computed."""
PATIENCE_S = 0.25

Part = tuple[int, int]
"""A page of a cache group or a state, as (group, index of the page in the prompt)."""


class CameBack(Struct, frozen=True):
    """A request whose reading has ended, so that it goes on. tokens: the number of tokens of its prompt that were read.
    seconds: the time of the reading."""

    request_id: str
    tokens: int
    seconds: float


class _Fetch(Struct, eq=False):
    """One prompt that is being read from the disk. Its pages of groups without a window are read first, in order;
    `stays` has those that the reader was not yet asked for. `others` has the parts that are read last: the pages of
    windows, and the state."""

    key: int
    graft: Graft
    place: bytes
    until_s: float
    since_s: float
    first: int
    places: Sequence[bytes]
    stays: deque[Part]
    others: tuple[Part, ...]
    waiting: list[str] = field(default_factory=list)
    asked: tuple[Part, ...] = ()
    files: dict[str, None] = field(default_factory=dict)
    num_bytes: int = 0


class DiskFetching:
    """Reads the cached pages of prompts from the disk into the prefix tree. Only the thread that runs steps may use it.
    clock: returns the time in seconds."""

    def __init__(
        self,
        cache: CacheManager,
        memory: PartMemory,
        store: PartStore,
        reader: PartReader,
        price: DiskPrice,
        clock: Callable[[], float],
    ) -> None:
        self._cache, self._memory, self._store, self._reader = cache, memory, store, reader
        self._price, self._clock = price, clock
        self._fetches: dict[int, _Fetch] = {}
        self._keys = itertools.count(1)
        self._late: set[int] = set()  # reads that were given up and have no answer yet

    def __len__(self) -> int:
        """Returns how many prompts are being read."""
        return len(self._fetches)

    def begin(self, request_id: str, salt: str, keys: Sequence[int]) -> bool:
        """Begins to read the pages of a request's prompt. Returns False when there is nothing to read. keys: the tokens
        of the prompt, with the key of a tile at each position of an image row."""
        self._late = {key for key in self._late if self._reader.owes(key)}
        if not self._store.readable or self._late:
            return False
        size = self._cache.page_tokens
        most = self._cache.most_shared_pages(len(keys))
        found = len(self._cache.match(salt, keys))
        if found >= most:
            return False
        places = self._places(salt, keys, most)
        end = self._end(places, salt, keys, min(most, len(places)))
        if end <= found:
            return False
        same = next((fetch for fetch in self._fetches.values() if fetch.place == places[end - 1]), None)
        if same is not None:
            same.waiting.append(request_id)
            return True
        graft = Graft(self._cache, salt, keys, end)
        stays, others = self._missing(graft, places, end, salt, keys)
        num_bytes = sum(self._memory.part_bytes(group) for group, _ in (*stays, *others))
        if not self._price.worth_reading(num_bytes, found * size, end * size) or not self._has_room(stays, others):
            self._store.counts.refused += 1
            graft.close()
            return False
        now = self._clock()
        patience_s = max(PATIENCE_S, PATIENCE * self._price.computing_s(found * size, end * size))
        fetch = _Fetch(
            *(next(self._keys), graft, places[end - 1], now + patience_s, now, found, places),
            deque(stays),
            tuple(others),
            [request_id],
        )
        self._fetches[fetch.key] = fetch
        self._ask(fetch)
        return True

    def cancel(self, request_id: str) -> None:
        """Forget a request that waits for the disk. The reading of a prompt ends when no request waits for it."""
        for fetch in list(self._fetches.values()):
            if request_id in fetch.waiting:
                fetch.waiting.remove(request_id)
                if not fetch.waiting:
                    self._end_of(fetch)

    def take(self, answers: Iterable[DiskAnswer]) -> list[CameBack]:
        """Take in the disk's answers, and return the requests that need no further answer."""
        ready: list[CameBack] = []
        for answer in answers:
            self._price.observe(sum(map(len, answer.parts)), answer.seconds)
            fetch = self._fetches.get(answer.key)
            if fetch is not None and not (self._keep(fetch, answer) and self._ask(fetch)):
                ready += self._end_of(fetch)
        now = self._clock()
        for fetch in list(self._fetches.values()):
            if now > fetch.until_s:
                self._late.add(fetch.key)
                ready += self._end_of(fetch)
        return ready

    def _places(self, salt: str, keys: Sequence[int], most: int) -> list[bytes]:
        """Returns the places (hashes of the tokens) of the prompt's first pages that are in memory or on the disk, in
        every group without a window. The first pages may be in memory; all pages after them must be on the disk."""
        groups = [number for number, group in enumerate(self._cache.groups) if not group.window]
        here = min((len(self._cache.groups[g].tree.match(salt, keys, most)) for g in groups), default=most)
        places: list[bytes] = []
        for index, place in enumerate(itertools.islice(page_places(salt, keys, self._cache.page_tokens), most)):
            places.append(place)
            if index >= here and not all(self._find(places, group, index) for group in groups):
                places.pop()
                break
        return places

    def _end(self, places: Sequence[bytes], salt: str, keys: Sequence[int], most: int) -> int:
        """Returns the largest number of pages, at most `most`, from which the prompt could go on: their windows and
        state are in memory or on the disk."""
        held = {
            number: self._cache.groups[number].tree.match(salt, keys, most)
            for number, group in enumerate(self._cache.groups)
            if group.window
        }
        if self._cache.states is not None:
            held[STATES] = self._cache.states.tree.match(salt, keys, most)

        def has(group: int, index: int) -> bool:
            path = held[group]
            if index < len(path) and path[index].page_id >= 0:
                return True
            return self._find(places, group, index) is not None

        return longest_end(self._cache, most, has)

    def _missing(
        self, graft: Graft, places: Sequence[bytes], end: int, salt: str, keys: Sequence[int]
    ) -> tuple[list[Part], list[Part]]:
        """Returns the parts to read: the pages of groups without a window, and then the other parts (pages of windows,
        the state)."""
        stays: list[Part] = []
        others: list[Part] = []
        for number, group in enumerate(self._cache.groups):
            if not group.window:
                stays += [(number, index) for index in range(graft.at, end)]
                continue
            path = group.tree.match(salt, keys, end)
            others += [
                (number, index)
                for index in range(group.first_needed(end), end)
                if index >= len(path) or path[index].page_id < 0
            ]
        states = self._cache.states
        if states is not None:
            path = states.tree.match(salt, keys, end)
            if len(path) < end or path[-1].page_id < 0:
                others.append((STATES, end - 1))
        return stays, others

    def _has_room(self, stays: Sequence[Part], others: Sequence[Part]) -> bool:
        wanted = len(stays) + sum(group != STATES for group, _ in others)
        return wanted <= self._cache.pages_left - self._cache.num_pages // LEFT_SHARE

    def _find(self, places: Sequence[bytes], group: int, index: int) -> DiskPart | None:
        found = self._store.find(self._store.part_id(place_of(places, group, index)))
        return found if found is not None and found.num_bytes == self._memory.part_bytes(group) else None

    def _ask(self, fetch: _Fetch) -> bool:
        """Begin to read the prompt's next pages or its state. Returns False when everything was read, or something is
        not on the disk any more."""
        if not fetch.waiting:
            return False
        asked: list[Part] = []
        size = 0
        while fetch.stays and (not asked or size + self._memory.part_bytes(fetch.stays[0][0]) <= ASKED_BYTES):
            asked.append(fetch.stays.popleft())
            size += self._memory.part_bytes(asked[-1][0])
        if not asked:
            asked, fetch.others = list(fetch.others), ()
        if not asked:
            return False
        found = [(self._find(fetch.places, *part), place_of(fetch.places, *part)) for part in asked]
        whole = [(part, place) for part, place in found if part is not None]
        if len(whole) < len(asked):
            return False
        fetch.asked = tuple(asked)
        self._reader.ask(DiskReading(fetch.key, tuple(whole)))
        return True

    def _keep(self, fetch: _Fetch, answer: DiskAnswer) -> bool:
        """Put the parts that were read into the caches, up to the first damaged one. Returns True when all parts were
        intact."""
        asked, whole = fetch.asked, len(answer.parts) == len(fetch.asked)
        if fetch.graft.at < fetch.graft.most:
            return self._keep_staying(fetch, answer.parts) and whole
        if not whole:
            return False
        data = dict(zip(asked, answer.parts, strict=True))
        end = fetch.graft.finish(data, (STATES, fetch.graft.most - 1) in data)
        for group, index, page_id in end.pages:
            self._memory.write_part(group, page_id, data[group, index])
        if end.slot is not None:
            self._memory.write_part(STATES, end.slot, data[STATES, fetch.graft.most - 1])
        return True

    def _keep_staying(self, fetch: _Fetch, parts: Sequence[bytes]) -> bool:
        count = len(parts)
        places = fetch.graft.reserve(count) if count else []
        if places is None:
            return False
        for (group, _, page_id), data in zip(places, parts, strict=True):
            self._memory.write_part(group, page_id, data)
        fetch.graft.commit(count)
        return True

    def _end_of(self, fetch: _Fetch) -> list[CameBack]:
        del self._fetches[fetch.key]
        fetch.graft.close()
        pages = len(self._cache.match(fetch.graft.salt, fetch.graft.keys)) - fetch.first
        tokens, seconds = max(0, pages) * self._cache.page_tokens, self._clock() - fetch.since_s
        self._store.counts.read_tokens += tokens
        return [CameBack(request_id, tokens, seconds) for request_id in fetch.waiting]
