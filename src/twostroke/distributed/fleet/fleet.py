"""Holds all streams of one front and the replicas that compute them. A lost replica's streams continue at another
replica.

A stream continues with the same bits. The next replica gets the prompt, the output so far, the seed and the parameters.
It makes the tokens that the lost replica would have made: replicas of equal Arithmetic give the same bits. A stream
moves in the same way after its first token, where its replica only computes prompts: see `_hand_over`.

distributed/fleet/moving.py predicts which prompts go to such a replica. Their pages are sent ahead to the decoding
replica.

add(request) -> Assignment in `outbox`            heard(name, frame, now) -> events
joined(facts, now) -> events                lost(name, now)
tick(now) -> names of replicas that have been silent for too long

Every request ends with exactly one FinishedEvent.
"""

from __future__ import annotations

import itertools
import operator
from collections import deque
from dataclasses import replace

from twostroke.cost.history.stay import StayEnd
from twostroke.distributed.fleet.images import encoded, tile_sent
from twostroke.distributed.fleet.ledger import FrontLedger
from twostroke.distributed.fleet.moving import ReplicaPlacement, Sooner
from twostroke.distributed.fleet.no_parking import NoParking
from twostroke.distributed.fleet.placer import Placer
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing
from twostroke.distributed.fleet.stream import FleetStream
from twostroke.distributed.fleet.totals import FleetTotals
from twostroke.distributed.wire.frames import (
    Assignment,
    Beat,
    Cancel,
    Frame,
    PagesAhead,
    PageSource,
    Refused,
    ReplicaFacts,
    ReplicaLoad,
    StepNews,
    TileAsked,
    TilesAhead,
    WirePrompt,
    WireStart,
    WireToken,
)
from twostroke.distributed.wire.translate import key_spans, wire_request, wire_spans
from twostroke.types.errors import Overloaded
from twostroke.types.event import Event, FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.request import FinishReason, Request

SUSPECT_S, SILENCE_S = 1.0, 3.0
MOST_DEATHS = 3
"""A request that ran on this many replicas when they ended is not given to another one, because it may be the cause."""
MOST_WAITING = 4096
KILLER = "This request ran on three replicas when they ended. It is not tried again."


class ReplicaFleet:
    """The requests of one front, and the replicas that compute them. Satisfies engine.book.RequestBook. outbox: pairs
    (replica's name, frame), to be sent in this order. moved: the number of streams taken from a lost replica.
    handed_over: the number of streams moved from the replica of their prompt to the one that decodes them. holds:
    whether replicas get no requests, because all are about to end. sooner: decides from predicted times whether two
    replicas share a request: prompt and decode. ledger: the front's own ledger, for its session."""

    def __init__(self, page_tokens: int, router: LeastSeconds | None = None, sooner: Sooner = operator.lt) -> None:
        self.outbox: deque[tuple[str, Frame]] = deque()
        self.moved = self.handed_over = 0
        self.holds = False
        self.parking = NoParking()
        self._placer = Placer(page_tokens, router or LeastSeconds(), sooner)
        self._members: dict[str, FleetMember] = {}
        self._instances: dict[str, str] = {}  # the last instance of each name
        self._streams: dict[str, FleetStream] = {}
        self.ledger = FrontLedger()
        self._numbers: dict[int, FleetStream] = {}
        self._waiting: deque[FleetStream] = deque()
        self.totals = FleetTotals()
        self._parties: dict[str, list[FleetStream]] = {}  # by group id, searches with beams still to come
        self._next = itertools.count(1)
        self._now = 0.0

    @property
    def members(self) -> list[FleetMember]:
        """The replicas that are connected."""
        return list(self._members.values())

    @property
    def num_waiting(self) -> int:
        """The number of requests that no replica has."""
        return len(self._waiting)

    @property
    def num_streams(self) -> int:
        """The number of requests that have not ended."""
        return len(self._streams)

    def refuse_waiting(self, why: str, retry_after_s: float | None, now: float) -> list[Event]:
        """Ends all requests that no replica has. They were not begun, or their replica is lost."""
        self._now = max(self._now, now)
        waiting = [each for first in list(self._waiting) for each in first.party]
        return [self._failed(stream, why, retry_after_s) for stream in waiting]

    # Called by the session.

    def add(self, request: Request) -> None:
        """Places a request, or beams when all beams of their search have come. Raises Overloaded where no replica is
        there and too many requests wait."""
        self._now = max(self._now, request.arrival_s)
        party = self._parties.setdefault(request.group_id, []) if request.steered else []
        stream = FleetStream(request, party=party)
        if not request.steered or len(party) == request.params.num_answers:
            self._parties.pop(request.group_id, None)
            if not self._placed(party[0]):
                if len(self._waiting) >= MOST_WAITING:
                    raise Overloaded("No replica is there.", why=f"{MOST_WAITING:,} requests wait for one.")
                self._waiting.append(party[0])
        self._streams[request.request_id] = stream
        self.ledger.opened(stream.account)

    def abort(self, request_id: str, now: float) -> list[Event]:
        """Ends a request; an unknown id changes nothing."""
        return self.finish(request_id, FinishReason.ABORT, now)

    def finish(
        self, request_id: str, reason: FinishReason, now: float, num_output_tokens: int | None = None
    ) -> list[Event]:
        """Ends a request for a reason that replicas cannot see, such as a stop string."""
        self._now = max(self._now, now)
        stream = self._streams.get(request_id)
        if stream is None:
            return []
        self._parties.pop(stream.request.group_id, None)
        self._cancel(stream)
        count = len(stream.told) if num_output_tokens is None else num_output_tokens
        live = [each for each in stream.party if each.request.request_id in self._streams]
        return [self._end(each, FinishedEvent("", reason, now, 0, count, 0, 0, None)) for each in live]

    # Called for the replicas.

    def joined(self, facts: ReplicaFacts, now: float, address: tuple[str, int] = ("", 0)) -> list[Event]:
        """Adds a replica, and places waiting requests. address: the address at which other replicas reach it.

        A replica that was lost and comes back as the same instance had lost only its connection. Another instance under
        the same name means that the earlier process has ended. A request is given up when it was running on MOST_DEATHS
        replicas whose processes ended.
        """
        self._now = max(self._now, now)
        before, self._instances[facts.name] = self._instances.get(facts.name), facts.instance
        for stream in self._streams.values():
            if before in stream.lost_on:
                stream.lost_on.discard(before)
                stream.deaths += before != facts.instance
        load, where = ReplicaLoad(token_s=facts.token_s), PageSource(facts.instance, *address)
        member = FleetMember(facts.name, facts.instance, facts.max_sequences, load, heard_s=now, where=where)
        member.role, member.page_bytes = facts.role, facts.page_bytes
        member.image_row_s, member.image_row_bytes = facts.image_row_s, facts.image_row_bytes
        self._members[facts.name] = member
        killers = [stream for stream in self._streams.values() if stream.deaths >= MOST_DEATHS]
        events: list[Event] = [self._failed(stream, KILLER) for stream in killers]
        self._place_waiting()
        return events

    def heard(self, name: str, frame: Frame, now: float) -> list[Event]:
        """Takes a frame of a replica. Its parts about streams that the replica no longer has are ignored."""
        self._now = max(self._now, now)
        member = self._members.get(name)
        if member is None:
            return []
        member.heard_s, member.suspect = now, False
        events: list[Event] = []
        if isinstance(frame, StepNews):
            events = self._news(member, frame)
        elif isinstance(frame, Beat):
            member.load, member.draining = frame.load, frame.draining
            self.totals.heard(member.instance, frame.load)
        elif isinstance(frame, Refused):
            events = self._refused(member, frame)
        elif isinstance(frame, TileAsked):
            self.outbox.append((member.name, tile_sent(self._numbers.get(frame.number), member, frame)))
        self._place_waiting()
        return events

    def lost(self, name: str, now: float) -> None:
        """Removes a lost replica. Its streams continue elsewhere, from the token after the last one that was sent."""
        self._now = max(self._now, now)
        member = self._members.pop(name, None)
        if member is None:
            return
        self._placer.router.forget(member)
        for stream in self._streams.values():
            if stream.encode_replica is member:  # the stream's own replica encodes the images when no rows come
                stream.encode_at(None, 0.0)
        streams = [stream for stream in self._streams.values() if stream.member is member]
        for stream in streams:
            self._take_back(stream, StayEnd.LOST)
            stream.lost_on.add(member.instance)
        self.moved += len(streams)
        for stream in streams:
            if stream is stream.party[0]:
                self._place_or_wait(stream)

    def tick(self, now: float) -> list[str]:
        """Returns the replicas that were silent for SILENCE_S. The caller closes their connections and calls `lost`."""
        self._now = max(self._now, now)
        for member in self._members.values():
            member.suspect = now - member.heard_s > SUSPECT_S
        return [member.name for member in self._members.values() if now - member.heard_s > SILENCE_S]

    # The methods from here on are used by both sides.

    def _news(self, member: FleetMember, news: StepNews) -> list[Event]:
        now, member.load = self._now, news.load
        self.totals.heard(member.instance, news.load)
        events: list[Event] = []
        for each in news.events:
            member.output_tokens += isinstance(each, WireToken)
            if (stream := self._of(member, each.number)) is None:
                continue
            if isinstance(each, WireToken):
                stream.take(each, now)
                events.append(TokenEvent(stream.request.request_id, each.token_id, each.logprob, now))
            elif isinstance(each, WireStart):
                stream.start(each, now)
                self.outbox += encoded(stream)
            elif isinstance(each, WirePrompt):
                new = stream.new_logprobs(each)
                if new or each.rows_sum:
                    events.append(PromptEvent(stream.request.request_id, new, each.rows_sum))
            elif each.event.retry_after_s is None or stream.told:
                events.append(self._end(stream, each.event))
            else:  # the request was held until it was too late
                events += self._refused(member, Refused(each.number, each.event.error or "", each.event.retry_after_s))
        if member.role == "prefill":
            self._hand_over(member)
        return events

    def _refused(self, member: FleetMember, refused: Refused) -> list[Event]:
        """Gives a refused request to another replica that may take it. Ends the request with an error where there is
        none."""
        stream = self._of(member, refused.number)
        if stream is None:
            return []
        for each in stream.party:
            self._take_back(each, StayEnd.REFUSED)
        if stream.handed:
            stream.stays_whole = True
        elif not self.holds and not self._may_be_taken(stream, member, refused):
            retry_s = None if refused.retry_after_s is None else max(0.0, stream.retry_at_s - self._now)
            return [self._failed(each, stream.refusal, retry_s) for each in stream.party]
        self._place_or_wait(stream)
        return []

    def _may_be_taken(self, stream: FleetStream, member: FleetMember, refused: Refused) -> bool:
        return stream.refuse(member.name, refused, {each.name for each in self._usable()}, self._now)

    def _usable(self) -> list[FleetMember]:
        """Returns the replicas that may compute requests; suspected ones only where there are no others."""
        return _trusted([member for member in self._ready() if member.role != "encode"])

    def _encoders(self) -> list[FleetMember]:
        return _trusted([member for member in self._ready() if member.role == "encode"])

    def _ready(self) -> list[FleetMember]:
        return [] if self.holds else [member for member in self._members.values() if not member.draining]

    def _hand_over(self, source: FleetMember) -> None:
        """Moves streams whose prompts `source` has computed to replicas that decode them. These replicas get the pages
        of the prompts from `source`.

        A stream stays at `source` where no other replica decodes, or where it cannot be split.
        """
        others = [each for each in self._usable() if each.role != "prefill"]
        here = [stream for stream in self._streams.values() if stream.member is source and stream.may_split]
        for stream in here if others else ():
            if len(stream.told) > stream.account.stays[-1].num_told:  # this replica has produced a token of the stream
                asked = self._placer.asked(stream)
                chosen = stream.decode_replica
                decoder = chosen if chosen in others else self._placer.router.rank(asked, others)
                self._cancel(stream)
                self._take_back(stream, StayEnd.HANDED, decoder)
                self._place(stream, asked, ReplicaPlacement(decoder, source))
                self.handed_over += 1

    def _placed(self, stream: FleetStream) -> bool:
        usable = self._usable()
        members = [m for m in usable if m.name not in stream.refused_by | stream.unpromised] or usable
        if members:
            asked = self._placer.asked(stream)
            self._place(stream, asked, self._placer.chosen(stream, asked, members, self._encoders()))
        return bool(members)

    def _place(self, stream: FleetStream, asked: Placing, placed: ReplicaPlacement) -> None:
        request, member = stream.request, placed.member
        ahead = stream.account.stays[-1].number if stream.decode_replica is member else 0
        self._placer.router.remember(asked, member)
        for each in stream.party:
            each.sent_to(member, next(self._next), self._now)
            self._numbers[each.number] = each
        stream.expect(1 if stream.handed else asked.num_tokens)
        beams, told = tuple(each.number for each in stream.party[1:]), tuple(stream.told)
        source = None if placed.source is None else placed.source.where
        promised = not stream.to_be_held and len(self._usable()) > 1
        sent, images, rows_from = wire_request(request, self._now, stream.memory), wire_spans(request.images), None
        if placed.encoder is not None:
            stream.encode_at(placed.encoder, placed.encode_s)
            rows_from = placed.encoder.where
            self.outbox.append((placed.encoder.name, TilesAhead(stream.number, images)))
        work = Assignment(stream.number, sent, told, source, beams, ahead, promised, images, rows_from)
        self.outbox.append((member.name, work))
        stream.decode_replica = placed.decode_replica
        if placed.decode_replica is not None:
            tokens = (*request.prompt_token_ids, *told)
            frame = PagesAhead(stream.number, request.cache_salt, tokens, member.where, key_spans(request.images))
            self.outbox.append((placed.decode_replica.name, frame))

    def _place_or_wait(self, stream: FleetStream) -> None:
        """Places a stream that was running already. If it must wait, it is placed before streams that never ran."""
        if not self._placed(stream):
            self._waiting.appendleft(stream)

    def _place_waiting(self) -> None:
        while self._waiting and self._placed(self._waiting[0]):
            self._waiting.popleft()

    def _of(self, member: FleetMember, number: int) -> FleetStream | None:
        stream = self._numbers.get(number)
        return stream if stream is not None and stream.member is member else None

    def _take_back(self, stream: FleetStream, end: StayEnd, decoder: FleetMember | None = None) -> None:
        """Takes a stream back from its replica, if it has one. decoder: the replica that gets the stream now. If
        another replica was chosen to decode the stream, it gets a message to stop copying the stream's pages."""
        if stream.decode_replica is not None and stream.decode_replica is not decoder:
            self.outbox.append((stream.decode_replica.name, Cancel(stream.number)))
            stream.decode_replica = None
        self.outbox += encoded(stream)
        self._numbers.pop(stream.number, None)
        stream.left(end, self._now)

    def _cancel(self, stream: FleetStream) -> None:
        if stream.member is not None:
            self.outbox.append((stream.member.name, Cancel(stream.number)))

    def _failed(self, stream: FleetStream, error: str, retry_s: float | None = None) -> FinishedEvent:
        self._cancel(stream)
        event = FinishedEvent("", FinishReason.ERROR, self._now, 0, len(stream.told), 0, 0, None, error=error)
        return self._end(stream, replace(event, retry_after_s=retry_s))

    def _end(self, stream: FleetStream, event: FinishedEvent) -> FinishedEvent:
        """Ends a stream. Returns the event with the front's request id and times, and the number of tokens that were
        cached at the stream's first start."""
        if stream.member is None and stream in self._waiting:
            self._waiting.remove(stream)
        self._take_back(stream, StayEnd.ENDED)
        stream.end(self._now, with_token=event.stopped_by is not None)
        del self._streams[stream.request.request_id]
        return replace(
            event,
            request_id=stream.request.request_id,
            at_s=self._now,
            num_prompt_tokens=len(stream.request.prompt_token_ids),
            num_cached_tokens=stream.account.cached,
            first_scheduled_s=stream.account.first_s,
            prefix_miss=None,  # a prefix miss describes the replica's own requests
        )


def _trusted(members: list[FleetMember]) -> list[FleetMember]:
    """Returns the members that are not suspected; all members where every one is suspected."""
    return [member for member in members if not member.suspect] or members
