"""Measures how long pieces lay in a mailbox because their reader was busy with earlier ones.

A reader that waits when a piece comes is never late, however long its event loop takes to wake it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from twostroke.cost.history.accounts import Accounts
from twostroke.types.output import Delta


class ReaderWatch:
    """Measures how long one stream's pieces lay unread because its reader (the client's connection) was busy.

    Call `taken` when the reader gets a piece, and `back` when it comes for the next one.
    """

    def __init__(self, clock: Callable[[], float], accounts: Accounts) -> None:
        self._clock = clock
        self._accounts = accounts
        self._back_s = self._before_s = clock()
        self._unread_s = 0.0

    def taken(self, sent_s: float, last_sent_s: float, delta: Delta) -> Delta:
        """Returns the piece. If it is the stream's last one, the delay that the reader has caused is added to its
        timings and its account.

        sent_s, last_sent_s: when the first and the last of the pieces that were joined to this one were sent. The time
        for which pieces lay unread begins at `sent_s`. The delay of the stream's end begins at `last_sent_s`, when the
        engine had finished.
        """
        busy_s = self._back_s - max(sent_s, self._before_s)
        self._unread_s += max(0.0, busy_s)
        was_busy = self._back_s > max(last_sent_s, self._before_s)
        self._before_s = self._back_s
        if delta.finish_reason is None:
            return delta
        late_s = self._clock() - last_sent_s if was_busy else 0.0
        self._accounts.reader(f"{delta.request_id}/{delta.index}", late_s, self._unread_s)
        timings = delta.timings
        if not late_s or timings is None or timings.parts is None:
            return delta
        parts = replace(timings.parts, client_stall_s=timings.parts.client_stall_s + late_s)
        return structs.replace(delta, timings=replace(timings, parts=parts))

    def back(self) -> None:
        """Note that the reader is done with the piece that it took last."""
        self._back_s = self._clock()
