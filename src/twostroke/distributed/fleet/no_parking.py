"""A front pauses no requests of clients that read slowly."""

from __future__ import annotations


class NoParking:
    """Parks no request: where clients read slowly, replicas go on computing. The part that writes answers to clients
    limits the output that nobody reads. Satisfies engine.book.Rests."""

    def park(self, request_id: str) -> None:
        """Does nothing, where an engine would pause the request of a client that does not read."""

    def go_on(self, request_id: str) -> None:
        """Does nothing, because no request was paused."""
