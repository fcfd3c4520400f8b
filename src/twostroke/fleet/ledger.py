"""The front's ledger: what a front itself sees of where a completion's time went. Replicas have the rest.

A stream's first step ends its queue time. Its first token ends its prefill time and begins its decode time.

Knows: streams of the fleet, accounts.
Must not know: sockets, clocks, what replicas know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from twostroke.cost.history.account import Account, Phase, QueueStory
from twostroke.cost.history.ledger import MAX_FINISHED, Ledger
from twostroke.cost.history.live_request import LiveRequest
from twostroke.fleet.stream import FleetStream, ReplicaStay
from twostroke.types.event import FinishedEvent
from twostroke.types.parts import TimeParts
from twostroke.types.request import Request

Kept = TypeVar("Kept")


class FrontLedger(Ledger):
    """A Ledger without steps. streams: the fleet's live streams by request id."""

    def __init__(self, streams: Mapping[str, FleetStream]) -> None:
        super().__init__()
        self._streams = streams
        self._left: dict[str, FleetStream] = {}  # ended, and `finish` was not called yet
        self._stays: dict[str, tuple[ReplicaStay, ...]] = {}  # of the latest accounts

    def arrive(self, request: Request) -> None:
        """The fleet knows it already."""

    def ended(self, stream: FleetStream) -> None:
        """The fleet has forgotten it; its FinishedEvent goes to `finish`."""
        _keep_latest(self._left, stream.request.request_id, stream)

    def finish(self, event: FinishedEvent) -> Account | None:
        """See Ledger."""
        stream = self._left.pop(event.request_id, None)
        if stream is None:
            return None
        account = _account(stream, event)
        self.accounts.add(account)
        _keep_latest(self._stays, event.request_id, tuple(stream.visits))
        return account

    def stays(self, request_id: str) -> tuple[ReplicaStay, ...]:
        """Say at which replicas an ended completion was; any thread may ask."""
        return self._stays.get(request_id, ())

    def live(self) -> list[LiveRequest]:
        """See Ledger."""
        return [_live(stream) for stream in list(self._streams.values())]

    def live_one(self, request_id: str) -> LiveRequest | None:
        """See Ledger."""
        stream = self._streams.get(request_id)
        return None if stream is None else _live(stream)


def _keep_latest(kept: dict[str, Kept], name: str, value: Kept) -> None:
    kept.pop(name, None)
    kept[name] = value
    if len(kept) > MAX_FINISHED:
        del kept[next(iter(kept))]


def _account(stream: FleetStream, event: FinishedEvent) -> Account:
    request, first_s, token_s, end_s = stream.request, event.first_scheduled_s, stream.first_token_s, event.at_s
    if token_s is None and event.stopped_by is not None:
        token_s = end_s  # the end token has no event of its own
    stream.come_back(end_s)
    queued = TimeParts(queue_s=(end_s if first_s is None else first_s) - request.arrival_s)
    start = None if token_s is None else TimeParts(queued.queue_s, token_s - (first_s or token_s))
    parts = queued
    if start is not None and token_s is not None:
        decode_s = end_s - token_s - stream.away_s
        parts = TimeParts(start.queue_s, start.own_prefill_s, 0.0, decode_s, recompute_s=stream.away_s)
    elif first_s is not None:
        parts = TimeParts(queued.queue_s, end_s - first_s)
    return Account(
        request_id=request.request_id,
        group_id=request.group_id,
        reason=event.reason,
        arrival_s=request.arrival_s,
        first_scheduled_s=first_s,
        first_token_s=token_s,
        finished_s=end_s,
        num_prompt_tokens=len(request.prompt_token_ids),
        num_output_tokens=event.num_output_tokens + (event.stopped_by is not None),
        num_cached_tokens=event.num_cached_tokens,
        priority=request.priority,
        parts=parts,
        start=start,
        queue=QueueStory(),
    )


def _live(stream: FleetStream) -> LiveRequest:
    request, started = stream.request, stream.started
    phase = Phase.QUEUED if stream.first_scheduled_s is None else Phase.FILLING
    if stream.told:
        phase = Phase.DECODING if stream.away_since_s is None else Phase.BACK
    cached = 0 if started is None else started.cached_tokens
    computed = len(request.prompt_token_ids) if stream.told else cached
    return LiveRequest(
        request.request_id,
        phase,
        request.arrival_s,
        stream.first_scheduled_s,
        stream.first_token_s,
        len(request.prompt_token_ids),
        computed,
        cached,
        0,
    )
