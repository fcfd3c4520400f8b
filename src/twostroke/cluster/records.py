"""Asks replicas where the time of ended requests went, for threads that wait for the answers.

    found = records.explain(fleet, "chatcmpl-7")      any thread; waits
    records.send(fleet)                               the front's thread, from here on
    records.came(name, frame); records.lost(name)

Knows: the fleet, futures.
Must not know: sockets, HTTP.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

from twostroke.cost.explain.explanation import Explanation
from twostroke.cost.history.account import Account
from twostroke.fleet.explain import Record, explained
from twostroke.fleet.fleet import ReplicaFleet
from twostroke.fleet.stream import ReplicaStay, StayEnd
from twostroke.wire.frames import RecordAsked, RecordSent

ANSWER_S = 10.0
"""A replica answers between two of its steps."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one completion. answers: one for each of its stays."""

    account: Account
    stays: tuple[ReplicaStay, ...]
    answers: list[Future[Record]]


class RecordCalls:
    """wake: ends the wait of the front's thread. answer_s: how long an answer is waited for."""

    def __init__(self, wake: Callable[[], None], answer_s: float = ANSWER_S) -> None:
        self._wake, self._answer_s = wake, answer_s
        self._asks: deque[tuple[ReplicaStay, str, Future[Record]]] = deque()
        self._waiting: dict[tuple[str, int], list[tuple[ReplicaStay, Future[Record]]]] = {}

    def explain(self, fleet: ReplicaFleet, name: str) -> list[Explanation]:
        """Explain a completion, or each completion of a request; an unknown id has no explanation."""
        asked = self.ask(fleet, name)
        self._wake()
        return self.told(asked)

    def ask(self, fleet: ReplicaFleet, name: str) -> list[Question]:
        """Make one question for each completion; `send` sends them."""
        found = fleet.ledger.accounts.find(name)
        return [self._question(account, fleet.ledger.stays(account.request_id)) for account in found]

    def told(self, asked: Sequence[Question]) -> list[Explanation]:
        """Wait until the answers are there or the time is over, and put the explanations together."""
        until_s = time.monotonic() + self._answer_s
        return [
            explained(
                each.account, each.stays, [_wait(*pair, until_s) for pair in zip(each.stays, each.answers, strict=True)]
            )
            for each in asked
        ]

    def _question(self, account: Account, stays: tuple[ReplicaStay, ...]) -> Question:
        question = Question(account, stays, [Future() for _ in stays])
        for stay, answer in zip(stays, question.answers, strict=True):
            if stay.end is StayEnd.REFUSED:
                answer.set_result("")
            else:
                self._asks.append((stay, account.group_id, answer))
        return question

    def send(self, fleet: ReplicaFleet) -> None:
        """Put questions into the fleet's outbox. A replica that was started anew is not asked: its record is gone."""
        there = {member.name: member.instance for member in fleet.members}
        while self._asks:
            stay, group, answer = self._asks.popleft()
            if there.get(stay.member) == stay.instance:
                self._waiting.setdefault((stay.member, stay.number), []).append((stay, answer))
                fleet.outbox.append((stay.member, RecordAsked(stay.number, group)))
            else:
                _give(answer, gone(stay))

    def came(self, name: str, frame: RecordSent) -> None:
        """A replica has answered."""
        for stay, answer in self._waiting.pop((name, frame.number), ()):
            _give(answer, forgotten(stay) if frame.explanation is None else frame.explanation)

    def lost(self, name: str) -> None:
        """A replica that was asked does not answer any more."""
        for key in [key for key in self._waiting if key[0] == name]:
            for stay, answer in self._waiting.pop(key):
                _give(answer, gone(stay))


def gone(stay: ReplicaStay) -> str:
    """The sentence for a replica that is not there any more."""
    return f"{stay.member} has ended since, and its record of this time with it"


def forgotten(stay: ReplicaStay) -> str:
    """The sentence for a replica that has dropped its oldest records."""
    return f"{stay.member} has no record of this time any more: newer requests took its place"


def _give(answer: Future[Record], record: Record) -> None:
    with suppress(InvalidStateError):  # nobody waits any more
        answer.set_result(record)


def _wait(stay: ReplicaStay, answer: Future[Record], until_s: float) -> Record:
    try:
        return answer.result(max(0.0, until_s - time.monotonic()))
    except TimeoutError:
        answer.cancel()
        return f"{stay.member} did not say in time what it did: it may be busy, ask again"
