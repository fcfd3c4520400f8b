"""The front's ledger: where the time of completions goes, as the front (the API server before the replicas) sees it.
Each replica accounts for the time that it has a stream."""

from __future__ import annotations

from twostroke.cost.history.account import Account, LiveAccount
from twostroke.cost.history.ledger import Ledger
from twostroke.types.event import FinishedEvent
from twostroke.types.request import Request


class FrontLedger(Ledger):
    """A Ledger for the front (the API server before the replicas), which runs no steps. Each stream of the fleet keeps
    its own account, and `finish` collects it."""

    def opened(self, account: LiveAccount) -> None:
        """Registers the account that the fleet has made for a new stream."""
        self._live[account.request.request_id] = account

    def arrive(self, request: Request) -> None:
        """Does nothing: `opened` has registered the account already. (A Ledger that runs steps makes the account here.)
        """

    def finish(self, event: FinishedEvent) -> Account | None:
        live = self._live.pop(event.request_id, None)
        return None if live is None else self._close(live, event)
