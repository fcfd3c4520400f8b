"""Fetches the pages of prompts from another replica: ahead of their streams, or while a request waits for them.

    begin(work) -> whether the request waits
    ahead(frame)   fetches pages while the other replica computes them
    asks           the questions to send, each with the replica that gets it
    came(key, answer) -> a request to be queued. key: the question's number. answer: None where no answer will come

Fetched pages are held until their request is queued, or its front (API server) cancels it, or the scheduler needs the
memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from twostroke.distributed.replica.page_exchange import PageExchange, PromptPages
from twostroke.distributed.replica.page_feeds import LinkId
from twostroke.distributed.wire.frames import (
    Assignment,
    KeySpan,
    PagesAhead,
    PagesAsked,
    PageSource,
    PagesSent,
)
from twostroke.distributed.wire.translate import key_spans, keyed
from twostroke.types.grammar import TokenMask


class WantedPrompt(Struct, frozen=True):
    """A prompt whose pages are fetched, as the first question of the transfer names it."""

    cache_salt: str
    token_ids: tuple[int, ...]
    images: tuple[KeySpan, ...]


@dataclass(eq=False, slots=True)
class PageFetch:
    """The fetch of one prompt's pages from another replica. key: the number in the frames that ask for the pages
    (PagesAsked) and in their answers. link_id: the connection of the front (API server) that sent the request. number:
    the number of the front's frame that began the fetch or brought the request.

    work: the request that waits for the pages; None before its Assignment has come. asking: whether a PagesAsked frame
    has no answer yet. announced: whether one has been made; only the first contains the prompt. over: whether no more
    pages will come.
    """

    key: int
    link_id: LinkId
    number: int
    source: PageSource
    prompt: WantedPrompt
    exchange: PageExchange
    pages: PromptPages
    work: Assignment | None = None
    masks: Sequence[TokenMask] = ()
    asking: bool = False
    announced: bool = False
    over: bool = False


class PagePulls:
    """Fetches the pages of prompts from other replicas. asks: the frames that ask for pages; the caller sends them in
    this order, and hands each answer to `came`.

    exchange: None where no page can be kept; then nothing is fetched. keys: an iterator of numbers, which no other
    question of this replica has.
    """

    def __init__(self, exchange: PageExchange | None, keys: Iterator[int]) -> None:
        self.asks: deque[tuple[PageSource, PagesAsked]] = deque()
        self._exchange = exchange
        self._pulls: dict[int, PageFetch] = {}
        self._next = keys

    def __len__(self) -> int:
        """The number of requests that wait for pages."""
        return sum(pull.work is not None for pull in self._pulls.values())

    def ahead(self, link_id: LinkId, frame: PagesAhead) -> None:
        """Begins to fetch the pages of a prompt that another replica is still computing. Its request comes later."""
        prompt = WantedPrompt(frame.cache_salt, frame.token_ids, frame.images)
        pull = self._open(link_id, frame.number, frame.source, prompt, goes_on=True)
        if pull is not None:
            self._ask(pull)

    def begin(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> bool:
        """Begins to fetch the pages of a request, or goes on with a fetch that `ahead` began. Returns False where there
        is nothing to fetch, so that the caller queues the request at once. masks: the token masks of the request's
        grammar, which are kept while it waits."""
        pull = self._find(link_id, work.ahead) if work.ahead else None
        if pull is None and work.pages_from is not None:
            request = work.request
            tokens = (*request.prompt_token_ids, *work.resumed)
            prompt = WantedPrompt(request.cache_salt, tokens, key_spans(request.images))
            pull = self._open(link_id, work.number, work.pages_from, prompt)
        if pull is None:
            return False
        pull.number, pull.work, pull.masks = work.number, work, masks
        if pull.asking or self._ask(pull):
            return True
        self._close(pull)
        return False

    def came(self, key: int, sent: PagesSent | None, hashes: Sequence[bytes] = ()) -> PageFetch | None:
        """Takes the answer to one of `asks`. Returns the fetch when it is complete and a request waits for it, so that
        the caller queues the request. Otherwise returns None: more is asked for, no request waits yet, or the fetch was
        ended. hashes: one hash of each page's data."""
        pull = self._pulls.get(key)
        if pull is None or not pull.asking:
            return None
        pull.asking = False
        pages = () if sent is None else sent.pages
        whole = pull.exchange.keep(_name(pull.key), pull.pages, pages, hashes) if pages else pull.work is None
        pull.over = sent is None or sent.over or not whole
        if self._ask(pull) or pull.work is None:
            return None
        return self._close(pull)

    def let_go(self) -> list[PageFetch]:
        """Ends all fetches, those ahead of a request too, and releases their pages. Returns the fetches for which a
        request waited. Called when the scheduler needs the memory."""
        return [pull for pull in list(self._pulls.values()) if self._close(pull).work is not None]

    def waits(self, link_id: LinkId, number: int) -> bool:
        """Returns whether pages are being fetched for the stream of this number, of the front (API server) with this
        connection."""
        return self._find(link_id, number) is not None

    def cancel(self, link_id: LinkId, number: int | None = None) -> None:
        """Ends the fetch for one stream of a front (API server); without a number, the fetches for all its streams."""
        for pull in list(self._pulls.values()):
            if pull.link_id == link_id and number in (None, pull.number):
                self._close(pull)

    def _open(
        self,
        link_id: LinkId,
        number: int,
        source: PageSource,
        prompt: WantedPrompt,
        goes_on: bool = False,
    ) -> PageFetch | None:
        if self._exchange is None:
            return None
        key = next(self._next)
        pages = self._exchange.open(_name(key), prompt.cache_salt, keyed(prompt.token_ids, prompt.images), goes_on)
        pull = self._pulls[key] = PageFetch(key, link_id, number, source, prompt, self._exchange, pages)
        return pull

    def _ask(self, pull: PageFetch) -> bool:
        """Asks for the next pages, if some are missing, may still come, and fit into memory. Returns whether it asked.
        """
        count = 0 if pull.over else pull.exchange.room(pull.pages)
        if count:
            own = pull.prompt
            prompt = () if pull.announced else (own.cache_salt, own.token_ids, own.images)
            self.asks.append((pull.source, PagesAsked(pull.key, pull.pages.at, count, *prompt)))
            pull.announced = pull.asking = True
        return bool(count)

    def _find(self, link_id: LinkId, number: int) -> PageFetch | None:
        found = (each for each in self._pulls.values() if each.link_id == link_id and each.number == number)
        return next(found, None)

    def _close(self, pull: PageFetch) -> PageFetch:
        pull.exchange.close(_name(pull.key))
        return self._pulls.pop(pull.key)


def _name(key: int) -> str:
    """Returns the name under which the cache holds the pages of this fetch. It differs from the names of requests,
    which end with an @ and a number."""
    return f"pages for {key}"
