"""Asks replicas where the time of ended requests went, for threads that wait for the answers.

    found = records.explain(fleet, "chatcmpl-7")      any thread; waits for the answers
    records.send(fleet)                               only the front's thread: sends the queued questions
    records.came(name, frame); records.lost(name)     only the front's thread: an answer has come, a replica was lost
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from twostroke.cost.explain.behind_front import Record, explained
from twostroke.cost.explain.explanation import Explanation
from twostroke.cost.history.account import Account
from twostroke.cost.history.stay import ReplicaStay, StayEnd
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.wire.frames import RecordAsked, RecordSent

ANSWER_S = 10.0
"""The longest wait in seconds for a replica's answer to the question where the time of a request went. A replica
answers between two of its steps."""


Answers = list[tuple[ReplicaStay, "Future[Record]"]]
"""For one completion: each of its stays at a replica, with the future answer of this replica."""


class RecordCalls:
    """Asks replicas what the time of ended requests went to. wake: a function that ends the wait of the front's thread.
    answer_s: the longest wait for an answer in seconds."""

    def __init__(self, wake: Callable[[], None], answer_s: float = ANSWER_S) -> None:
        self._wake, self._answer_s = wake, answer_s
        self._asks: deque[tuple[ReplicaStay, str, Future[Record]]] = deque()
        self._waiting: dict[tuple[str, int], Answers] = {}

    def explain(self, fleet: ReplicaFleet, name: str) -> list[Explanation]:
        """Explains a completion, or each completion of a request. An unknown id has no explanation."""
        asked = self.ask(fleet, name)
        self._wake()
        return self.told(asked)

    def ask(self, fleet: ReplicaFleet, name: str) -> list[tuple[Account, Answers]]:
        """Asks each replica that had a completion where the completion's time at this replica went. name: the id of the
        completion, or of a request, which stands for all its completions. The questions are queued until `send`."""
        asked = []
        for account in fleet.ledger.accounts.find(name):
            answers: Answers = [(stay, Future()) for stay in account.stays]
            asked.append((account, answers))
            for stay, answer in answers:
                if stay.end is StayEnd.REFUSED:
                    answer.set_result("")
                else:
                    self._asks.append((stay, account.group_id, answer))
        return asked

    def told(self, asked: Sequence[tuple[Account, Answers]]) -> list[Explanation]:
        """Waits until the replicas have answered or the time is over. Returns for each completion the explanation where
        its time went. asked: the result of `ask`."""
        until_s = time.monotonic() + self._answer_s
        return [explained(account, [_wait(*each, until_s) for each in answers]) for account, answers in asked]

    def send(self, fleet: ReplicaFleet) -> None:
        """Sends the queued questions to the replicas, by the fleet's outbox. A replica that was restarted is not asked,
        because its record is gone."""
        while self._asks:
            stay, group, answer = self._asks.popleft()
            if any(each.name == stay.member and each.instance == stay.instance for each in fleet.members):
                self._waiting.setdefault((stay.member, stay.number), []).append((stay, answer))
                fleet.outbox.append((stay.member, RecordAsked(stay.number, group)))
            else:
                answer.set_result(gone(stay))

    def came(self, name: str, frame: RecordSent) -> None:
        """Takes the answer of a replica."""
        forgotten = f"{name} has no record of this time any more: newer requests took its place"
        for _, answer in self._waiting.pop((name, frame.number), ()):
            answer.set_result(frame.explanation or forgotten)

    def lost(self, name: str) -> None:
        """Ends the open questions to a lost replica, which will not answer any more."""
        for key in [key for key in self._waiting if key[0] == name]:
            for stay, answer in self._waiting.pop(key):
                answer.set_result(gone(stay))


def gone(stay: ReplicaStay) -> str:
    """Returns the text that is shown in place of a replica's explanation where the replica has ended meanwhile."""
    return f"{stay.member} has ended since, and its record of this time with it"


def _wait(stay: ReplicaStay, answer: Future[Record], until_s: float) -> Record:
    try:
        return answer.result(max(0.0, until_s - time.monotonic()))
    except TimeoutError:
        return f"{stay.member} did not say in time what it did: it may be busy, ask again"
