"""Answers questions of other replicas for pages. A question for a page that is not computed yet waits for the next
steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from twostroke.distributed.replica.page_exchange import PageExchange, PromptPages
from twostroke.distributed.wire.frames import Frame, PagesAsked, PagesSent

LinkId = int

WAIT_S = 0.5
"""The seconds that a question waits for a page. The other side asks again as long as it hopes for one."""
KEPT_S = 10.0
MOST_FEEDS = 256


@dataclass(eq=False, slots=True)
class _Feed:
    """One transfer to another replica. asked: the question that has no answer yet. heard_s: the time when the last
    question came."""

    exchange: PageExchange
    pages: PromptPages
    asked: PagesAsked | None
    heard_s: float


class PageFeeds:
    """Keeps transfers by (link, number of the question). exchange: None where there are no pages to send. outbox: the
    queue into which answers are put."""

    def __init__(self, exchange: PageExchange | None, outbox: deque[tuple[LinkId, Frame]]) -> None:
        self._exchange, self._outbox = exchange, outbox
        self._feeds: dict[tuple[LinkId, int], _Feed] = {}

    @property
    def waits(self) -> bool:
        """Does a question still wait for its answer?"""
        return any(feed.asked is not None for feed in self._feeds.values())

    def ask(self, link_id: LinkId, asked: PagesAsked, now: float) -> None:
        """Notes a question. A question about a transfer that is not known any more is answered at once."""
        key = (link_id, asked.number)
        feed = self._feeds.get(key)
        if self._exchange is not None and asked.token_ids and len(self._feeds) < MOST_FEEDS:
            self._feeds[key] = _Feed(self._exchange, self._exchange.source_of(asked), asked, now)
        elif feed is None or feed.pages.at != asked.first:
            self._feeds.pop(key, None)
            self._outbox.append((link_id, PagesSent(asked.number, (), True)))
        else:
            feed.asked, feed.heard_s = asked, now

    def answer(self, now: float, busy: set[LinkId]) -> bool:
        """Answers the questions that can be answered now: with pages that have become full, or with no pages where the
        time is over. Returns whether any was answered.

        There is one answer for each link, as the bytes of many would not be sent in time. busy: links that have unsent
        bytes already; links that are answered are added to it.
        """
        before = len(busy)
        for (link_id, number), feed in list(self._feeds.items()):
            if feed.asked is not None and link_id not in busy:
                pages = feed.exchange.read(feed.pages, feed.asked.count)
                if pages or now - feed.heard_s > WAIT_S:
                    self._outbox.append((link_id, PagesSent(number, pages)))
                    busy.add(link_id)
                    feed.asked = None
            elif now - feed.heard_s > KEPT_S:
                del self._feeds[link_id, number]
        return len(busy) > before

    def close(self, link_id: LinkId) -> None:
        """Forgets the questions of a replica that is gone."""
        for key in [key for key in self._feeds if key[0] == link_id]:
            del self._feeds[key]
