"""Stands in for the streams of a replica that only encodes images. Such a replica has no language model and no streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from twostroke.cost.explain.explanation import Explanation
from twostroke.distributed.replica.page_feeds import LinkId
from twostroke.distributed.replica.streams import News
from twostroke.distributed.wire.frames import Assignment, RecordAsked, Refused, ReplicaLoad
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar, TokenMask
from twostroke.types.request import Request

NO_TEXT = "This replica encodes images and has no language model."


class NoGrammars:
    """Satisfies engine.session.Grammars where nothing is generated."""

    def submit(self, grammar: Grammar, count: int) -> Future[tuple[TokenMask, ...]]:
        """Refuses a grammar."""
        raise InvalidRequest(NO_TEXT)


class NoStreams:
    """Satisfies ReplicaStreams where no request is computed. Each request is refused."""

    has_work = wants_memory = False

    def open(self, link_id: LinkId) -> None:
        """See ReplicaStreams."""

    def serves(self, link_id: LinkId) -> bool:
        """See ReplicaStreams."""
        return True

    def why_not(self, request: Request) -> str:
        """See ReplicaStreams."""
        return NO_TEXT

    def has(self, link_id: LinkId, number: int) -> bool:
        """See ReplicaStreams."""
        return False

    def queue(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> Refused | None:
        """See ReplicaStreams."""
        return Refused(work.number, NO_TEXT)

    def cancel(self, link_id: LinkId, number: int) -> None:
        """See ReplicaStreams."""

    def close(self, link_id: LinkId) -> None:
        """See ReplicaStreams."""

    def explanation(self, asked: RecordAsked) -> Explanation | None:
        """See ReplicaStreams."""
        return None

    def step(self) -> News | None:
        """See ReplicaStreams."""
        return None

    def settle(self) -> None:
        """See ReplicaStreams."""

    def load(self, page_rate: float, encode_s: float) -> ReplicaLoad:
        """See ReplicaStreams."""
        return ReplicaLoad(page_rate=page_rate, encode_s=encode_s)
