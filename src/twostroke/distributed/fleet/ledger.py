"""The front's ledger: the parts of a completion's time that the front itself sees. Replicas have the rest."""

from __future__ import annotations

from twostroke.cost.history.account import Account, LiveAccount
from twostroke.cost.history.ledger import Ledger
from twostroke.types.event import FinishedEvent
from twostroke.types.request import Request


class FrontLedger(Ledger):
    """A Ledger of the front, which runs no steps: each stream of the fleet keeps its own account, and `finish` collects
    it."""

    def opened(self, account: LiveAccount) -> None:
        """Registers the account of a new stream of the fleet. The fleet has made the account."""
        self._live[account.request.request_id] = account

    def arrive(self, request: Request) -> None:
        """Does nothing. A Ledger that runs steps makes a request's account here; in the front, `opened` has registered
        it already."""

    def finish(self, event: FinishedEvent) -> Account | None:
        live = self._live.pop(event.request_id, None)
        if live is None:
            return None
        account = self._account(live, event)
        self.accounts.add(account)
        return account
