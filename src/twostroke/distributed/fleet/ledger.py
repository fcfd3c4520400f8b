"""The front's ledger: the parts of a completion's time that the front itself sees. Replicas have the rest."""

from __future__ import annotations

from twostroke.cost.history.account import Account, LiveAccount
from twostroke.cost.history.ledger import Ledger
from twostroke.types.event import FinishedEvent
from twostroke.types.request import Request


class FrontLedger(Ledger):
    """A Ledger without steps: each stream of the fleet accounts for its own time, up to its end."""

    def opened(self, account: LiveAccount) -> None:
        """Adds the account of a new stream of the fleet."""
        self._live[account.request.request_id] = account

    def arrive(self, request: Request) -> None:
        """Does nothing, because the fleet has opened the account already."""

    def finish(self, event: FinishedEvent) -> Account | None:
        live = self._live.pop(event.request_id, None)
        if live is None:
            return None
        account = self._account(live, event)
        self.accounts.add(account)
        return account
