"""Writes the pages of sequences that have ended to the disk. They are copied between steps, a few at a time, and
another thread writes the copies.

A sequence that ends leaves its pages in the prefix tree. They are copied soon after, so that they are on the disk when
the tree evicts them. Pages that are evicted before they are copied are not written. A sequence that ends while too many
others wait is not written either.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.cache.holdings import SequenceCache
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import page_places
from twostroke.engine.cache.prefix_tree import Node, PrefixTree
from twostroke.engine.disk.contract import DiskWriting, PartStore, PartWriter
from twostroke.engine.disk.parts import STATES, PartMemory, place_of

LEAST_TOKENS = 256
"""The fewest tokens of a sequence that is written."""
MOST_JOBS = 256
FILE_BYTES, FILE_PARTS = 16 << 20, 64
"""A file that has this many bytes, or this many parts (pages of K and V, states), gets no further parts."""
BUSY_BYTES, IDLE_BYTES = 1 << 20, 16 << 20
"""The most bytes that are copied between two steps while requests run, and while none runs."""
KEPT_STATES = 2
"""This many snapshots of a sequence are written, its last ones. The last snapshot within its prompt is written, too."""
DEPART_PAGES = 4
"""The text of the next turn of a chat may differ from this sequence at most this many pages before the end of the
prompt. There, a chat template may write text that it leaves out in later turns, such as an empty thought."""

Wanted = tuple[int, int]
"""A page or state to write, as (group, index of the page in the sequence)."""


class DiskSaving:
    """Copies the pages of ended sequences for the disk. Only the thread that runs steps may use it. trusted(seconds):
    returns True when the weights are known to be undamaged; it waits for at most `seconds`. Until then nothing is
    written, because pages of damaged weights must not outlive the process."""

    def __init__(
        self,
        cache: CacheManager,
        memory: PartMemory,
        store: PartStore,
        writer: PartWriter,
        price: DiskPrice,
        trusted: Callable[[float], bool],
    ) -> None:
        self._cache, self._memory, self._store, self._writer = cache, memory, store, writer
        self._price, self._trusted = price, trusted
        self._jobs: deque[_Job] = deque()
        self._given: set[bytes] = set()  # places that the writer has got

    @property
    def pending(self) -> bool:
        """True when pages of ended sequences are still to be copied."""
        return bool(self._jobs)

    def ended(self, holding: SequenceCache, prompt_pages: int, stay_s: float = 0.0) -> None:
        """Queues the pages of a sequence that has ended, to be written. prompt_pages: the number of full pages of its
        prompt; a later request may begin with exactly these. stay_s: the seconds for which the disk keeps the pages
        before others; 0 for none."""
        if holding.full_pages * self._cache.page_tokens < LEAST_TOKENS or not self._store.writable:
            return
        if len(self._jobs) >= MOST_JOBS:
            self._store.counts.lost += 1
            return
        self._jobs.append(_Job(holding.salt, _nodes_of(holding), min(prompt_pages, holding.full_pages), stay_s))

    def go_on(self, idle: bool) -> None:
        """Copy some pages and states from memory and give them to the writer, as far as it has room. It is called
        between two steps. idle: True when no request runs; then more is copied."""
        if not self._store.writable:
            self._jobs.clear()
        left = IDLE_BYTES if idle else BUSY_BYTES
        if self._writer.idle:
            self._given.clear()  # all written places are in the index
        while left > 0 and self._jobs and self._writer.has_room and self._trusted(0.0):
            job = self._jobs[0]
            if not job.begun:
                self._begin(job)
            left -= self._copy(job, left)
            if not job.wanted:
                self._jobs.popleft()

    def finish(self, seconds: float, flush_s: float) -> None:
        """Copies all pages that are left, when the engine stops. seconds: the longest wait for the check of the
        weights, and for room at the writer. flush_s: the longest wait until the copies are written."""
        if self._jobs and not self._trusted(seconds):
            self._jobs.clear()
        while self._jobs and self._store.writable and self._writer.wait_room(seconds):
            self.go_on(idle=True)
        self._writer.flush(flush_s)

    def _begin(self, job: _Job) -> None:
        """Finds out which pages and states of an ended sequence are to be written: those that are not on the disk yet,
        if reading them is predicted to be faster than computing the tokens."""
        cache, tokens = self._cache, list(itertools.chain.from_iterable(node.tokens for node in job.nodes))
        count = len(job.nodes)
        job.tokens, job.places = tokens, list(page_places(job.salt, tokens, cache.page_tokens))
        wanted = list(self._wanted(job))
        num_bytes = sum(self._memory.part_bytes(group) for group, _ in wanted)
        worth = self._price.worth_reading(num_bytes, 0, count * cache.page_tokens)
        job.wanted = deque(each for each in wanted if not self._has(job, *each)) if worth else deque()
        job.begun = True
        if job.stay_s and worth:
            found = (self._store.find(self._store.part_id(place_of(job.places, *each))) for each in wanted)
            files = dict.fromkeys(part.file for part in found if part is not None)
            self._writer.give(DiskWriting((), job.stay_s, tuple(files)))

    def _wanted(self, job: _Job) -> Iterator[Wanted]:
        """Yields the pages and states that a later prompt needs to go on from the ends that `_ends` returns, each as
        (group, index)."""
        cache, ends = self._cache, self._ends(job)
        for index in range(len(job.nodes)):
            for number, group in enumerate(cache.groups):
                if not group.window or any(group.first_needed(end) <= index < end for end in ends):
                    yield number, index
            if cache.states is not None and index + 1 in ends:
                yield STATES, index

    def _ends(self, job: _Job) -> set[int]:
        """Returns the numbers of full pages after which a later prompt is to be able to go on, so that windows or
        states are written there."""
        cache, count, prompt = self._cache, len(job.nodes), job.prompt_pages
        if cache.states is not None:
            path = cache.states.tree.match(job.salt, job.tokens, count)
            snapshots = [index + 1 for index, node in enumerate(path) if node.page_id >= 0]
            return {*snapshots[-KEPT_STATES:], *[end for end in snapshots if end <= prompt][-1:]}
        windows = [(number, group) for number, group in enumerate(cache.groups) if group.window]
        paths = {number: group.tree.match(job.salt, job.tokens, count) for number, group in windows}

        def whole(end: int) -> bool:
            wanted = ((number, index) for number, group in windows for index in range(group.first_needed(end), end))
            return all(_is_here(paths[number], index) or self._has(job, number, index) for number, index in wanted)

        return {count, prompt, *filter(whole, range(max(1, prompt - DEPART_PAGES), prompt))}

    def _has(self, job: _Job, group: int, index: int) -> bool:
        place = place_of(job.places, group, index)
        return place in self._given or self._store.find(self._store.part_id(place)) is not None

    def _copy(self, job: _Job, most: int) -> int:
        """Copy some of a sequence's pages, about `most` bytes, and return how many bytes. When the copies fill a file,
        they are given to the writer."""
        copied = 0
        paths: dict[int, list[Node]] = {}
        while job.wanted and copied < most:
            group, index = job.wanted.popleft()
            if group not in paths:
                paths[group] = self._tree_of(group).match(job.salt, job.tokens, len(job.nodes))
            path = paths[group]
            if not _is_here(path, index):  # the page was evicted meanwhile
                self._store.counts.lost += 1
                continue
            own = path[index].page_id
            if group == STATES and self._cache.states is not None:
                own = self._cache.states.content_of(own)
            data = self._memory.read_part(group, own)
            job.batch.append((place_of(job.places, group, index), data))
            job.batch_bytes += len(data)
            copied += len(data)
            if job.batch_bytes >= FILE_BYTES or len(job.batch) >= FILE_PARTS:
                self._give(job)
        if not job.wanted:
            self._give(job)
        return copied

    def _give(self, job: _Job) -> None:
        if job.batch:
            self._given.update(place for place, _ in job.batch)
            self._writer.give(DiskWriting(job.batch, job.stay_s))
            job.batch, job.batch_bytes = [], 0

    def _tree_of(self, group: int) -> PrefixTree:
        states = self._cache.states
        return self._cache.groups[group].tree if group != STATES or states is None else states.tree


def _is_here(path: Sequence[Node], index: int) -> bool:
    return index < len(path) and path[index].page_id >= 0


class _Job:
    """One ended sequence whose pages are to be written. wanted: the pages and states to write, in order, once the job
    has begun. batch: the pages and states that were copied for the next file."""

    __slots__ = (
        *("batch", "batch_bytes", "begun", "nodes", "places"),
        *("prompt_pages", "salt", "stay_s", "tokens", "wanted"),
    )

    def __init__(self, salt: str, nodes: Sequence[Node], prompt_pages: int, stay_s: float) -> None:
        self.salt, self.nodes, self.prompt_pages, self.stay_s = salt, nodes, prompt_pages, stay_s
        self.begun = False
        self.tokens: list[int] = []
        self.places: list[bytes] = []
        self.wanted: deque[Wanted] = deque()
        self.batch: list[tuple[bytes, bytes]] = []
        self.batch_bytes = 0


def _nodes_of(holding: SequenceCache) -> Sequence[Node]:
    """Returns the nodes of the sequence's full pages, from the first on."""
    if holding.tables:
        return tuple(holding.tables[0].nodes)
    nodes: list[Node] = []
    node = None if holding.state is None else holding.state.node
    while node is not None and node.parent is not None:
        nodes.append(node)
        node = node.parent
    return tuple(reversed(nodes))
