"""Questions of other replicas for pages. One for a page that is not computed yet waits for the next steps.

Knows: the page exchange.
Must not know: sockets, clocks, requests.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from twostroke.cluster.page_exchange import PageExchange, PromptPages
from twostroke.wire.frames import PagesAsked, PagesSent

LinkId = int

WAIT_S = 0.5
"""A question waits this long for a page. The other side asks again as long as it hopes for one."""
KEPT_S = 10.0
MOST_FEEDS = 256


@dataclass(eq=False, slots=True)
class _Feed:
    """asked: the question that has no answer yet. heard_s: when the last one came."""

    pages: PromptPages
    asked: PagesAsked | None
    heard_s: float


class PageFeeds:
    """Answers by (link, number of the question)."""

    def __init__(self, exchange: PageExchange) -> None:
        self._exchange = exchange
        self._feeds: dict[tuple[LinkId, int], _Feed] = {}

    @property
    def waits(self) -> bool:
        """Has a question no answer yet?"""
        return any(feed.asked is not None for feed in self._feeds.values())

    def ask(self, link_id: LinkId, asked: PagesAsked, now: float) -> PagesSent | None:
        """-> an answer where there will be no other one."""
        key = (link_id, asked.number)
        if asked.token_ids and len(self._feeds) < MOST_FEEDS:
            self._feeds[key] = _Feed(self._exchange.source_of(asked), asked, now)
            return None
        feed = self._feeds.get(key)
        if feed is None or feed.pages.at != asked.first:
            self._feeds.pop(key, None)
            return PagesSent(asked.number, (), True)
        feed.asked, feed.heard_s = asked, now
        return None

    def answers(self, now: float, busy: Set[LinkId]) -> list[tuple[LinkId, PagesSent]]:
        """The answers that can be given now: pages that have become full, or no pages where the time is over.

        There is one answer for each link, as the bytes of many would not be sent in time. busy: links that have
        unsent bytes already.
        """
        made: dict[LinkId, PagesSent] = {}
        for key, feed in list(self._feeds.items()):
            if feed.asked is not None and key[0] not in busy and key[0] not in made:
                pages = self._exchange.read(feed.pages, feed.asked.count)
                if pages or now - feed.heard_s > WAIT_S:
                    made[key[0]] = PagesSent(key[1], pages)
                    feed.asked = None
            elif now - feed.heard_s > KEPT_S:
                del self._feeds[key]
        return list(made.items())

    def close(self, link_id: LinkId) -> None:
        """Forget the questions of a replica that is gone."""
        for key in [key for key in self._feeds if key[0] == link_id]:
            del self._feeds[key]
