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
    """Measures how long one stream's pieces lay unread.

    Call `taken` when a piece is handed over, `back` when its reader comes for the next.
    """

    def __init__(self, clock: Callable[[], float], accounts: Accounts) -> None:
        self._clock = clock
        self._accounts = accounts
        self._back_s = self._before_s = clock()
        self._unread_s = 0.0

    def taken(self, sent_s: float, last_sent_s: float, delta: Delta) -> Delta:
        """Returns the piece. A last piece has the delay in its timings, and its account gets the delay too.

        sent_s, last_sent_s: when the first and the last of the pieces that were joined to this one were sent. The time
        unread counts from the first piece. The lateness of the end counts from the last piece, because the engine was
        still at work before.
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
        """Note that the reader is done with the piece that was taken last."""
        self._back_s = self._clock()
