"""The front's ledger: what a front itself sees of where a completion's time went. Replicas have the rest."""

from __future__ import annotations

from twostroke.cost.history.account import Account, LiveAccount
from twostroke.cost.history.ledger import Ledger
from twostroke.types.event import FinishedEvent
from twostroke.types.request import Request


class FrontLedger(Ledger):
    """A Ledger without steps: each stream of the fleet accounts for its own time, up to its end."""

    def opened(self, account: LiveAccount) -> None:
        """The fleet has a new stream."""
        self._live[account.request.request_id] = account

    def arrive(self, request: Request) -> None:
        """The fleet has opened it already."""

    def finish(self, event: FinishedEvent) -> Account | None:
        live = self._live.pop(event.request_id, None)
        if live is None:
            return None
        account = self._account(live, event)
        self.accounts.add(account)
        return account
