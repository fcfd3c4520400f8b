"""Calls for pages end with an answer or with none, whatever the other side does."""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest

from tests.cluster.test_links import FACTS, replica
from tests.serve.harness import WAIT_S
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.replica import page_calls
from twostroke.distributed.replica.page_calls import PageCalls
from twostroke.distributed.replica.page_feeds import PageFeeds
from twostroke.distributed.wire.frames import PagesAsked, PageSource, PagesSent, ReplicaFacts

ASKED = PagesAsked(5, 0, 2, "", tuple(range(8)))


class Calls:
    """came, said: the answers and the messages, in the order in which they came."""

    def __init__(self, facts: ReplicaFacts = FACTS) -> None:
        self.came: queue.SimpleQueue[tuple[int, PagesSent | None]] = queue.SimpleQueue()
        self.said: list[str] = []
        self.calls = PageCalls(secret_key(None), facts, lambda *each: self.came.put(each), self.said.append)

    def ask(
        self, address: tuple[str, int], instance: str = FACTS.instance, own_s: float = 0.0
    ) -> tuple[int, PagesSent | None]:
        self.calls.ask(PageSource(instance, *address), ASKED, own_s)
        return self.came.get(timeout=2 * WAIT_S)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.setattr(page_calls, "ANSWER_S", WAIT_S)  # here no answer comes late; some never come
    made = Calls()
    yield made
    made.calls.close()


def test_a_replica_without_pages_answers_so_on_one_connection(calls: Calls) -> None:
    with replica() as address:
        assert [calls.ask(address) for _ in range(3)] == [(5, PagesSent(5, (), True))] * 3
        assert calls.said == []


def test_a_replica_that_is_gone_gives_none_and_the_next_one_is_called_again(calls: Calls) -> None:
    with replica() as address:
        assert calls.ask(address)[1] is not None
    assert calls.ask(address) == (5, None) and calls.said
    with replica(port=address[1]):
        assert calls.ask(address)[1] is not None


def test_one_that_says_nothing_is_given_up(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_calls, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert calls.ask(silent.getsockname()[:2]) == (5, None)
    assert "no answer in time" in calls.said[0]


def test_there_is_one_wait_for_all_questions_to_a_replica_that_is_gone(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of twelve tiles waited twelve times for an encoder that was gone: each question made a call of its own.
    """
    monkeypatch.setattr(page_calls, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = PageSource(FACTS.instance, *silent.getsockname()[:2])
        for number in range(12):
            calls.calls.ask(source, msgspec.structs.replace(ASKED, number=number))
        found = [calls.came.get(timeout=2 * WAIT_S) for _ in range(12)]
        assert sorted(number for number, _ in found) == list(range(12)) and {sent for _, sent in found} == {None}
        silent.setblocking(False)
        callers = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                callers += 1
    assert callers == 1 and len(calls.said) == 1


def test_a_replica_in_a_long_step_is_waited_for_as_long_as_computing_would_take(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(feeds: PageFeeds, link_id: int, asked: PagesAsked, now: float) -> None:
        time.sleep(0.4)
        answer(feeds, link_id, asked, now)

    answer = PageFeeds.ask
    with replica() as address:
        assert calls.ask(address)[1] is not None
        monkeypatch.setattr(PageFeeds, "ask", ask)
        monkeypatch.setattr(page_calls, "ANSWER_S", 0.1)
        assert calls.ask(address, own_s=WAIT_S)[1] is not None
        assert calls.ask(address) == (5, None) and "no answer in time" in calls.said[0]


def test_a_start_of_the_replica_that_never_had_the_pages_is_not_asked(calls: Calls) -> None:
    with replica() as address:
        assert calls.ask(address, "another start") == (5, None)
    assert "started anew" in calls.said[0]


def test_pages_of_other_arithmetic_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(msgspec.structs.replace(FACTS, model="other"))
    with replica() as address:
        assert calls.ask(address) == (5, None)
    assert "differs from this replica in the model" in calls.said[0]
    calls.calls.close()
