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
    """Satisfies engine.resources.Grammars on a replica that generates nothing: each grammar is refused."""

    def submit(self, grammar: Grammar, count: int) -> Future[tuple[TokenMask, ...]]:
        """Raises InvalidRequest."""
        raise InvalidRequest(NO_TEXT)


class NoStreams:
    """Satisfies ReplicaStreams on a replica that only encodes images. Each request is refused, so there is never a
    stream."""

    has_work = wants_memory = False

    def open(self, link_id: LinkId) -> None:
        """Does nothing, because a front (API server) has no streams here."""

    def serves(self, link_id: LinkId) -> bool:
        """Returns True, so that each request of a front (API server) gets an answer, which is a refusal."""
        return True

    def why_not(self, request: Request) -> str:
        return NO_TEXT

    def has(self, link_id: LinkId, number: int) -> bool:
        return False

    def queue(self, link_id: LinkId, work: Assignment, masks: Sequence[TokenMask]) -> Refused | None:
        return Refused(work.number, NO_TEXT)

    def cancel(self, link_id: LinkId, number: int) -> None:
        """Does nothing, because there are no streams."""

    def close(self, link_id: LinkId) -> None:
        """Does nothing, because there are no streams."""

    def explanation(self, asked: RecordAsked) -> Explanation | None:
        return None

    def step(self) -> News | None:
        return None

    def settle(self) -> None:
        """Does nothing, because there are no steps."""

    def load(self, page_rate: float, encode_s: float) -> ReplicaLoad:
        return ReplicaLoad(page_rate=page_rate, encode_s=encode_s)
