"""The front's ledger: what a front itself sees of where a completion's time went. Replicas have the rest.

Knows: streams of the fleet, accounts.
Must not know: sockets, clocks, what replicas know.
"""

from __future__ import annotations

from typing import TypeVar

from twostroke.cost.history.account import Account
from twostroke.cost.history.ledger import MAX_FINISHED, Ledger
from twostroke.cost.history.stay import ReplicaStay
from twostroke.fleet.stream import FleetStream
from twostroke.types.event import FinishedEvent
from twostroke.types.request import Request

Kept = TypeVar("Kept")


class FrontLedger(Ledger):
    """A Ledger without steps: each stream of the fleet keeps its own account."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[str, FleetStream] = {}  # ended, and `finish` was not called yet
        self._stays: dict[str, tuple[ReplicaStay, ...]] = {}  # of the latest accounts

    def opened(self, stream: FleetStream) -> None:
        """The fleet has a new stream."""
        self._live[stream.request.request_id] = stream.account

    def arrive(self, request: Request) -> None:
        """The fleet has opened it already."""

    def ended(self, stream: FleetStream) -> None:
        """The fleet has forgotten it; its FinishedEvent goes to `finish`."""
        self._live.pop(stream.request.request_id, None)
        _keep_latest(self._left, stream.request.request_id, stream)

    def finish(self, event: FinishedEvent) -> Account | None:
        """See Ledger."""
        stream = self._left.pop(event.request_id, None)
        if stream is None:
            return None
        stream.end(event.at_s, with_token=event.stopped_by is not None)
        account = self._account(stream.account, event)
        self.accounts.add(account)
        _keep_latest(self._stays, event.request_id, tuple(stream.visits))
        return account

    def stays(self, request_id: str) -> tuple[ReplicaStay, ...]:
        """Say at which replicas an ended completion was; any thread may ask."""
        return self._stays.get(request_id, ())


def _keep_latest(kept: dict[str, Kept], name: str, value: Kept) -> None:
    kept.pop(name, None)
    kept[name] = value
    if len(kept) > MAX_FINISHED:
        del kept[next(iter(kept))]
