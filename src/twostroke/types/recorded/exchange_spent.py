"""The time and bytes that one process of a divided model spent on the exchange with the others."""

from __future__ import annotations

from msgspec import Struct


class ExchangeSpent(Struct, frozen=True):
    """calls: meetings in which this process took part. sent_bytes: bytes that it sent to the others. seconds: the time
    of all calls. waited_s: the part of `seconds` in which it waited for another process.
    """

    calls: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: ExchangeSpent) -> ExchangeSpent:
        return ExchangeSpent(
            self.calls + other.calls,
            self.sent_bytes + other.sent_bytes,
            self.seconds + other.seconds,
            self.waited_s + other.waited_s,
        )

    def __sub__(self, before: ExchangeSpent) -> ExchangeSpent:
        return ExchangeSpent(
            self.calls - before.calls,
            self.sent_bytes - before.sent_bytes,
            self.seconds - before.seconds,
            self.waited_s - before.waited_s,
        )
