"""Pages of a long prompt come in many small answers. Each side walks the prompt once, and no wrong page is kept."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.fleet.invented import PAGE_TOKENS, PagedModel
from twostroke.distributed.replica import page_exchange
from twostroke.distributed.replica.page_exchange import PageExchange, hash_of
from twostroke.distributed.wire.frames import PagesAsked, WirePage
from twostroke.engine.cache.manager import CacheManager

PAGES = 40
TOKENS = tuple(range(PAGES * PAGE_TOKENS + 1))


def side(filled: int = 0) -> tuple[CacheManager, PagedModel, PageExchange]:
    """A replica that has computed this many pages of TOKENS."""
    cache, model = CacheManager(2 * PAGES, PAGE_TOKENS), PagedModel()
    compute(cache, model, filled)
    return cache, model, PageExchange(cache, model)


def compute(cache: CacheManager, model: PagedModel, filled: int) -> None:
    cache.open("own", "", cache.match("", TOKENS))
    tables = cache.reserve("own", filled * PAGE_TOKENS)
    assert tables is not None
    for index, page in enumerate(tables[0]):
        model.pages[page] = list(TOKENS[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS])
    cache.commit("own", filled * PAGE_TOKENS, TOKENS)
    cache.close("own")


def test_an_answer_costs_its_own_pages_however_long_the_prompt_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_exchange, "ANSWER_BYTES", 2 * PagedModel.page_bytes)
    hashed, walked = [0], [0]
    real_hash, real_match = hashlib.blake2b, CacheManager.match

    def counted_hash(*args: Any, **options: Any) -> Any:
        hashed[0] += 1
        return real_hash(*args, **options)

    def counted_match(self: CacheManager, *args: Any) -> Any:
        walked[0] += 1
        return real_match(self, *args)

    _, _, sender = side(PAGES)
    cache, model, receiver = side()
    monkeypatch.setattr(hashlib, "blake2b", counted_hash)
    monkeypatch.setattr(CacheManager, "match", counted_match)
    target = receiver.open("pull", "", TOKENS)
    source = sender.source_of(PagesAsked(1, target.at, 1, "", TOKENS))
    answers = 0
    while count := receiver.room(target):
        pages = sender.read(source, count)
        assert receiver.keep("pull", target, pages, [hash_of(page.data) for page in pages])
        answers += 1
    assert answers == PAGES / 2
    assert walked[0] == 1
    assert hashed[0] <= 6 * PAGES + 2, "a place, a hash and a digest of each page, on both sides"
    receiver.close("pull")
    assert len(cache.match("", TOKENS)) == PAGES
    assert sorted(model.pages.values()) == [list(TOKENS[at : at + PAGE_TOKENS]) for at in range(0, 160, PAGE_TOKENS)]
    cache.check()


@pytest.mark.parametrize("more", [0, 1])
def test_the_last_full_page_comes_where_more_tokens_follow(more: int) -> None:
    tokens = TOKENS[: 3 * PAGE_TOKENS + more]
    _, _, receiver = side()
    assert receiver.room(receiver.open("ahead", "", tokens, goes_on=True)) == 3
    assert receiver.room(receiver.open("all", "", tokens)) == 2 + more


def test_pages_are_sent_as_they_are_computed() -> None:
    cache, model, sender = side(3)
    source = sender.source_of(PagesAsked(1, 0, PAGES, "", TOKENS))
    assert len(sender.read(source, PAGES)) == 3 and sender.read(source, PAGES) == ()
    compute(cache, model, 7)
    assert len(sender.read(source, PAGES)) == 4


def test_what_was_evicted_is_not_sent() -> None:
    cache, model, sender = side(6)
    source = sender.source_of(PagesAsked(1, 0, PAGES, "", TOKENS))
    assert len(sender.read(source, 3)) == 3
    cache.drop_cached()
    assert sender.read(source, 3) == ()
    compute(cache, model, 4)
    assert len(sender.read(source, 3)) == 1


@pytest.mark.parametrize("change", ["data", "order", "length", "many"])
def test_damaged_pages_are_not_kept(change: str) -> None:
    _, _, sender = side(PAGES)
    _, _, receiver = side()
    target = receiver.open("pull", "", TOKENS)
    pages = list(sender.read(sender.source_of(PagesAsked(1, 0, 4, "", TOKENS)), 4))
    if change == "data":
        pages[2] = WirePage(bytes([pages[2].data[0] ^ 1]) + pages[2].data[1:], pages[2].digest)
    elif change == "order":
        pages[2:] = pages[:1:-1]
    elif change == "length":
        pages[2] = WirePage(pages[2].data[1:], pages[2].digest)
    else:
        pages = pages[:2] + [pages[1]] * (2 * PAGES)
    assert not receiver.keep("pull", target, pages, [hash_of(page.data) for page in pages])
    assert target.at == 2
