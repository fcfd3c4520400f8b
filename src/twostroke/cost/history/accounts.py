"""The accounts of the latest completions that have ended, and how long pieces of their answers waited for their
readers."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from twostroke.cost.history.account import Account


class Accounts:
    """The accounts of completions that have ended. The thread that steps writes them. Other threads may call `find` and
    `reader`, which touch one dict at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ended: dict[str, Account] = {}  # the oldest account comes first
        self._groups: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, tuple[float, float]] = {}
        self.num_added = 0

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, account: Account) -> None:
        """Keep one account; the oldest one is dropped when there are too many. When an id is used again, the
        new account replaces the old one."""
        self._forget(account.request_id)
        self._ended[account.request_id] = account
        self.num_added += 1
        members = self._groups.get(account.group_id, ())
        self._groups[account.group_id] = (*members, account.request_id)
        while len(self._ended) > self._most:
            self._forget(next(iter(self._ended)))

    def since(self, num_added: int, most: int) -> list[Account]:
        """Returns the latest `most` of the accounts that were added after the first `num_added`; the oldest is first.
        """
        count = min(self.num_added - num_added, most)
        return list(self._ended.values())[-count:] if count > 0 else []

    def reader(self, request_id: str, late_s: float, unread_s: float) -> None:
        """Records that the reader of a completion took the last piece `late_s` after the end, because it was busy with
        earlier pieces.

        unread_s: how long pieces waited for the reader, summed up.
        """
        if late_s or unread_s:
            self._readers[request_id] = (late_s, unread_s)
            # A reader may be slower than the account lives. `_forget` removes the account first and the reader second,
            # so the later of the two calls removes the reader.
            if request_id not in self._ended:
                self._readers.pop(request_id, None)

    def find(self, name: str) -> list[Account]:
        """Returns the account of a completion, or those of all completions of a request by index; empty for an unknown
        name."""
        names = (name,) if name in self._ended else self._groups.get(name, ())
        found = [account for each in names if (account := self._ended.get(each)) is not None]
        return [self._read(account) for account in sorted(found, key=_index)]

    def _read(self, account: Account) -> Account:
        late_s, unread_s = self._readers.get(account.request_id, (0.0, 0.0))
        parts = replace(account.parts, client_stall_s=account.parts.client_stall_s + late_s)
        return structs.replace(account, parts=parts, unread_s=unread_s)

    def _forget(self, request_id: str) -> None:
        old = self._ended.pop(request_id, None)
        self._readers.pop(request_id, None)
        if old is None:
            return
        members = tuple(name for name in self._groups.get(old.group_id, ()) if name != request_id)
        if members:
            self._groups[old.group_id] = members
        else:
            self._groups.pop(old.group_id, None)


def _index(account: Account) -> tuple[int, str]:
    place = account.request_id.rpartition("/")[2]
    return (int(place) if place.isdigit() else 0, account.request_id)
