"""Exchanges pages of K and V with other replicas: reads the pages to send from the cache, and puts received pages into
it.

A received page is put into the prefix tree between two steps, and the scheduler finds it as it finds any prefix. Each
side looks up a prompt's tokens in its prefix tree once, however many frames of pages follow. Pages that are evicted,
damaged or never sent are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twostroke.distributed.wire.frames import PagesAsked, WirePage
from twostroke.distributed.wire.translate import keyed
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cache.places import hash_of, page_digest, page_places
from twostroke.engine.cache.prefix_tree import Node

__all__ = ["PageExchange", "PageStore", "PromptPages", "hash_of"]

ANSWER_BYTES = 24 << 20
"""The most bytes of pages in one answer, which has at least one page. There is one answer after each step. If a step
fills more pages than that, the remaining ones are sent later."""
LEFT_SHARE = 8
"""Pages are fetched from another replica only while more than 1/LEFT_SHARE of the pool's pages can be allocated."""


class PageStore(Protocol):
    """The memory that holds K and V, as the exchange uses it. A page of a prompt is given by `page_ids`: one page id
    for each page group."""

    @property
    def page_bytes(self) -> int:
        """The bytes of one page in all layers of all groups."""

    def read(self, page_ids: Sequence[int]) -> bytes:
        """Returns a copy of the bytes of these pages."""

    def write(self, page_ids: Sequence[int], data: bytes) -> None:
        """Writes `page_bytes` bytes into these pages."""


@dataclass(eq=False, slots=True)
class PromptPages:
    """The progress of sending one prompt's pages from one replica to another, at the sender or at the receiver. keys:
    the prompt's token ids, with the key of the tile at each position of an image row. at: how many of its pages were
    sent, or at the receiver, are in the cache.

    most: the most pages that the receiver wants. digests: the digests of the pages from `at` on. paths: the sender's
    path of nodes in each prefix tree.
    """

    salt: str
    keys: tuple[int, ...]
    digests: Iterator[bytes]
    at: int
    most: int
    paths: list[list[Node]] = field(default_factory=list)


class PageExchange:
    """Reads pages to send, and keeps received pages, between two steps. Raises ValueError for a cache with windows or
    states, because only pages of full attention can be sent."""

    def __init__(self, cache: CacheManager, store: PageStore) -> None:
        if not cache.pages_stay:
            raise ValueError("only pages that stay can be sent")
        self._cache, self._store = cache, store
        self._most_pages = max(1, ANSWER_BYTES // store.page_bytes)

    # The sender.

    def source_of(self, asked: PagesAsked) -> PromptPages:
        """Returns the sender's state for a new transfer. `asked` is the transfer's first question, the only one that
        has the prompt's tokens."""
        keys = keyed(asked.token_ids, asked.images)
        digests = self._places(asked.cache_salt, keys, asked.first)
        paths: list[list[Node]] = [[] for _ in self._cache.groups]
        return PromptPages(asked.cache_salt, keys, digests, asked.first, len(keys), paths)

    def read(self, source: PromptPages, count: int) -> tuple[WirePage, ...]:
        """Returns the next pages of a prompt to send, at most `count`: those after the pages already sent, as far as
        they are cached here. source: the prompt, and how many of its pages were sent."""
        most = source.at + min(count, self._most_pages)
        end = self._cache.extend(source.paths, source.salt, source.keys, most)
        pages = []
        for index in range(source.at, end):
            data = self._store.read([path[index].page_id for path in source.paths])
            pages.append(WirePage(data, page_digest(next(source.digests), hash_of(data))))
        source.at += len(pages)
        return tuple(pages)

    # Methods of the receiver.

    def open(self, name: str, salt: str, keys: tuple[int, ...], goes_on: bool = False) -> PromptPages:
        """Begins to receive pages of a prompt: pages that are cached already, and those that arrive, are held under
        `name` until `close`.

        goes_on: whether more tokens of the prompt will follow; then each full page is fetched. Otherwise a page that
        ends with the prompt's last token is not fetched, because this token is always computed here.
        """
        found, most = self._cache.match(salt, keys), (len(keys) - (not goes_on)) // self._cache.page_tokens
        self._cache.open(name, salt, found)
        return PromptPages(salt, keys, self._places(salt, keys, len(found)), len(found), most)

    def room(self, target: PromptPages) -> int:
        """Returns the number of pages to ask for next: 0 where all wanted pages have come, or where memory is short."""
        left = self._cache.pages_left - self._cache.num_pages // LEFT_SHARE
        return max(0, min(target.most - target.at, self._most_pages, left))

    def keep(self, name: str, target: PromptPages, pages: Sequence[WirePage], hashes: Sequence[bytes]) -> bool:
        """Writes received pages into the cache, up to the first damaged one. Returns whether all pages were kept.
        hashes: one hash of each page's data."""
        good: list[bytes] = []
        for page, found in zip(pages, hashes, strict=True):
            if len(page.data) != self._store.page_bytes or page.digest != page_digest(next(target.digests, b""), found):
                break
            good.append(page.data)
        end = (target.at + len(good)) * self._cache.page_tokens
        tables = self._cache.reserve(name, end) if end <= len(target.keys) else None
        if tables is None:
            return False
        for index, data in enumerate(good, target.at):
            self._store.write([table[index] for table in tables], data)
        self._cache.commit(name, end, target.keys)
        target.at += len(good)
        return len(good) == len(pages)

    def close(self, name: str) -> None:
        """Ends the transfer. Pages that were received stay cached."""
        self._cache.close(name)

    def _places(self, salt: str, tokens: Sequence[int], first: int) -> Iterator[bytes]:
        return page_places(salt, tokens, self._cache.page_tokens, first)
