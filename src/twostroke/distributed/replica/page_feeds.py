"""Answers other replicas that ask for pages. A question for a page that is not computed yet waits for the next steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from twostroke.distributed.replica.page_exchange import PageExchange, PromptPages
from twostroke.distributed.wire.frames import Frame, PagesAsked, PagesSent

LinkId = int

WAIT_S = 0.5
"""The longest wait of a question for a page, in seconds. After it the answer has no pages, and the other replica may
ask again."""
KEPT_S = 10.0
MOST_FEEDS = 256


@dataclass(eq=False, slots=True)
class _Feed:
    """One transfer of a prompt's pages to another replica. asked: the question that has no answer yet. heard_s: the
    time when the last question came."""

    exchange: PageExchange
    pages: PromptPages
    asked: PagesAsked | None
    heard_s: float


class PageFeeds:
    """The transfers of pages to other replicas, by (link, number of the transfer). exchange: None where there are no
    pages to send. outbox: the queue into which answers are put."""

    def __init__(self, exchange: PageExchange | None, outbox: deque[tuple[LinkId, Frame]]) -> None:
        self._exchange, self._outbox = exchange, outbox
        self._feeds: dict[tuple[LinkId, int], _Feed] = {}

    @property
    def waits(self) -> bool:
        """True while another replica has asked for pages and has no answer yet."""
        return any(feed.asked is not None for feed in self._feeds.values())

    def ask(self, link_id: LinkId, asked: PagesAsked, now: float) -> None:
        """Takes a replica's question for pages; `answer` answers it later. A question about a transfer that was
        forgotten is answered at once, without pages."""
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
        """Answers the replicas that asked for pages. Sends the pages that are computed by now, or none where a question
        has waited for WAIT_S. Returns whether anything was sent.

        Each connection gets at most one answer, because the bytes of many would take too long to send. busy:
        connections with many unsent bytes, which get no answer; a connection that gets one is added to the set.
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
        """Forgets the transfers to a replica that is gone."""
        for key in [key for key in self._feeds if key[0] == link_id]:
            del self._feeds[key]
