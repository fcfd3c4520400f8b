"""Image rows travel from a replica that encodes for others, whatever is damaged, dropped, cancelled or lost."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from msgspec import structs

from tests.fleet.test_tile_pulls import plain
from tests.fleet.world import ARITHMETIC
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.replica import row_feeds
from twostroke.distributed.replica.page_feeds import KEPT_S, WAIT_S
from twostroke.distributed.replica.row_feeds import RowFeeds
from twostroke.distributed.replica.row_pulls import RowPulls, WaitingRequest
from twostroke.distributed.wire.frames import (
    Assignment,
    Beat,
    Cancel,
    Frame,
    PageSource,
    ReplicaFacts,
    ReplicaLoad,
    RowsAsked,
    RowsSent,
    StepNews,
    TileAsked,
    TilesAhead,
    TileSent,
    WireStart,
)
from twostroke.distributed.wire.translate import EncodeJob, wire_key, wire_spans
from twostroke.engine.cache.places import hash_of
from twostroke.types.images import ImageSpan, ImageTile, key_of
from twostroke.types.request import Request

SOURCE = PageSource("i", "host", 1)
ROW_BYTES = 8
FRONT, ASKER = 1, 2
"""The connections of the replica that encodes."""


def tile(number: int, rows: int = 6) -> ImageTile:
    return ImageTile(key_of(number.to_bytes(32, "big")), 1, rows, 4, 4, b"")


def rows_of(one: ImageTile) -> bytes:
    """The rows that an encoder computes from it."""
    return random.Random(one.key).randbytes(ROW_BYTES * one.rows)


class FakeRows:
    """Satisfies RowStore. An encode needs two calls. broken: the keys whose encode fails."""

    row_bytes = ROW_BYTES

    def __init__(self) -> None:
        self.rows: dict[int, bytes] = {}
        self.begun: set[int] = set()
        self.broken: set[int] = set()
        self.encoded = 0

    def has(self, key: int) -> bool:
        return key in self.rows

    def read(self, key: int, first: int, count: int) -> bytes | None:
        found = self.rows.get(key)
        return None if found is None else found[first * ROW_BYTES : (first + count) * ROW_BYTES]

    def keep(self, key: int, data: bytes) -> None:
        self.rows[key] = data

    def work(self, one: ImageTile, seconds: float) -> bool:
        if one.key in self.broken:
            return True
        if one.key not in self.begun:
            self.begun.add(one.key)
            return False
        self.rows[one.key] = rows_of(one)
        self.encoded += 1
        return True

    def predicted_s(self, one: ImageTile) -> float:
        return 0.5

    def missing(self, request: Request) -> Iterable[ImageTile]:
        return [span.tile for span in request.images if not self.has(span.tile.key)]


def work(number: int, *tiles: ImageTile) -> Assignment:
    spans = tuple(ImageSpan(10 * place, each) for place, each in enumerate(tiles))
    return Assignment(number, replace(plain(number), images=spans), rows_from=SOURCE)


class Pair:
    """A replica that encodes, and one that asks it. spoil: changes an answer on its way; None means that the answer is
    lost."""

    def __init__(self, spoil: Callable[[RowsSent], RowsSent | None] = lambda sent: sent) -> None:
        self.outbox: deque[tuple[int, Frame]] = deque()
        self.there, self.here = FakeRows(), FakeRows()
        self.feeds = RowFeeds(self.there, self.outbox)
        self.pulls = RowPulls(self.here, iter(range(1, 1000)))
        self.spoil, self.now, self.answers = spoil, 0.0, 0

    def ahead(self, number: int, *tiles: ImageTile) -> None:
        """The front's frame, and the pixels."""
        spans = wire_spans(tuple(ImageSpan(0, each) for each in tiles))
        self.feeds.expect(FRONT, TilesAhead(number, spans))
        self.feeds.begin(FRONT, EncodeJob(number, tiles))

    def run(self) -> list[WaitingRequest]:
        """Runs until nothing waits any more."""
        ready: list[WaitingRequest] = []
        for _ in range(1000):
            while self.pulls.asks:
                source, asked, own_s = self.pulls.asks.popleft()
                assert source == SOURCE and own_s == 0.5
                self.feeds.ask(ASKER, asked, self.now)
            self.feeds.work(0.1)
            self.now += WAIT_S / 3
            self.feeds.answer(self.now, set())
            while self.outbox:
                link, sent = self.outbox.popleft()
                assert link == ASKER and isinstance(sent, RowsSent)
                self.answers += 1
                found = self.spoil(sent)
                ready += self.pulls.came(sent.number, found, b"" if found is None else hash_of(found.data))
            if not len(self.pulls):
                return ready
        raise AssertionError("somebody waits for ever")


def test_rows_are_those_that_were_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_feeds, "ANSWER_BYTES", 3 * ROW_BYTES)
    pair, one, other = Pair(), tile(1, 7), tile(2)
    pair.ahead(5, one, other)
    assert pair.feeds.left_s == 1.0
    assert pair.pulls.begin(9, work(5, one, other, one), ())
    assert pair.pulls.begin(9, work(6, one), ()) and pair.pulls.waits(9, 6)
    found = pair.run()
    assert sorted(each.work.number for each in found) == [5, 6]
    assert pair.here.rows == {each.key: rows_of(each) for each in (one, other)}
    assert pair.there.encoded == 2 and pair.pulls.received_bytes == ROW_BYTES * 13
    assert not pair.pulls.begin(9, work(7, one), ()), "they are here"
    assert pair.feeds.left_s == 0.0 and not pair.feeds.has_work and not pair.feeds.waits


def test_a_question_that_comes_before_the_front_s_frame_waits_for_it() -> None:
    pair, one = Pair(), tile(1)
    assert pair.pulls.begin(9, work(5, one), ())
    _, asked, _ = pair.pulls.asks.popleft()
    pair.feeds.ask(ASKER, asked, 0.0)
    assert not pair.feeds.answer(WAIT_S / 2, set()) and pair.feeds.waits
    pair.ahead(5, one)
    pair.now = WAIT_S / 2
    assert [each.work.number for each in pair.run()] == [5] and pair.here.rows


def test_what_nobody_announced_is_encoded_by_who_wants_it() -> None:
    pair, one = Pair(), tile(1)
    assert pair.pulls.begin(9, work(5, one), ())
    assert [each.work.number for each in pair.run()] == [5]
    assert not pair.here.rows and pair.now < KEPT_S


@pytest.mark.parametrize(
    "spoil",
    [
        lambda sent: None,
        lambda sent: structs.replace(sent, data=sent.data[:-1] + b"?") if sent.data else sent,
        lambda sent: structs.replace(sent, digest=b"d" * 16) if sent.data else sent,
        lambda sent: structs.replace(sent, first=1) if sent.data else sent,
        lambda sent: structs.replace(sent, data=sent.data + bytes(ROW_BYTES)) if sent.data else sent,
        lambda sent: structs.replace(sent, data=sent.data[:-1]) if sent.data else sent,
    ],
    ids=("lost", "damaged", "digest", "place", "longer", "cut"),
)
def test_rows_that_do_not_come_whole_are_left_out(spoil: Callable[[RowsSent], RowsSent | None]) -> None:
    pair, one = Pair(spoil), tile(1)
    pair.ahead(5, one)
    assert pair.pulls.begin(9, work(5, one), ())
    assert [each.work.number for each in pair.run()] == [5] and not pair.here.rows


def test_an_encode_that_fails_and_rows_that_were_dropped_are_over() -> None:
    pair, broken, dropped = Pair(), tile(1), tile(2)
    pair.there.broken.add(broken.key)
    pair.ahead(5, broken, dropped)
    while pair.feeds.has_work:
        pair.feeds.work(0.1)
    pair.there.rows.clear()
    assert pair.pulls.begin(9, work(5, broken, dropped), ())
    assert [each.work.number for each in pair.run()] == [5] and not pair.here.rows


def test_what_is_cancelled_is_not_encoded_and_not_waited_for() -> None:
    pair, one, other = Pair(), tile(1), tile(2)
    pair.ahead(5, one)
    pair.ahead(6, other)
    pair.feeds.cancel(FRONT, 5)
    assert pair.pulls.begin(9, work(5, one), ()) and pair.pulls.begin(9, work(6, other), ())
    pair.pulls.cancel(9, 5)
    assert not pair.pulls.waits(9, 5)
    assert [each.work.number for each in pair.run()] == [6]
    assert set(pair.there.rows) == {other.key} == set(pair.here.rows)
    pair.ahead(7, tile(3))
    pair.feeds.cancel(FRONT)
    assert not pair.feeds.has_work
    pair.feeds.ask(ASKER, RowsAsked(3, wire_key(one.key), 0, 1), 0.0)
    pair.feeds.cancel(ASKER)
    assert not pair.feeds.waits


def test_a_replica_that_reads_no_images_says_so() -> None:
    outbox: deque[tuple[int, Frame]] = deque()
    feeds = RowFeeds(None, outbox)
    feeds.ask(ASKER, RowsAsked(3, bytes(32), 0, 1), 0.0)
    assert outbox.pop() == (ASKER, RowsSent(3, over=True)) and not feeds.work(1.0)
    assert not RowPulls(None, iter(())).begin(1, work(5, tile(1)), ())


# The front.


def always(elsewhere_s: float, here_s: float) -> bool:
    return True


def joined(fleet: ReplicaFleet, name: str, role: str) -> None:
    facts = ReplicaFacts(name, f"{name} instance", "m", ARITHMETIC, 16, 1000, 500, 300, 8, 0.001, sight="s")
    seen = structs.replace(facts, role=role, image_row_s=0.01, image_row_bytes=8)
    fleet.joined(seen, 0.0, (name, 1))


def sent_to(fleet: ReplicaFleet, name: str) -> list[Frame]:
    """What was sent to a replica. All of it is taken out."""
    found = [frame for to, frame in fleet.outbox if to == name]
    fleet.outbox.clear()
    return found


def asked_of(fleet: ReplicaFleet, number: int, *tiles: ImageTile) -> None:
    spans = tuple(ImageSpan(10 * place, each) for place, each in enumerate(tiles))
    ids = tuple(range(2, 2 + 10 * len(tiles) + 30))
    fleet.add(replace(plain(number), prompt_token_ids=ids, images=spans))


def test_a_front_has_images_encoded_and_ends_that_with_the_first_step() -> None:
    fleet, one = ReplicaFleet(16, sooner=always), ImageTile(tile(1).key, 1, 6, 4, 4, b"p" * 48)
    joined(fleet, "e", "encode")
    joined(fleet, "t", "both")
    asked_of(fleet, 1, one)
    frames = list(fleet.outbox)
    assert [name for name, _ in frames] == ["e", "t"], "pixels and encode come before the question for rows"
    (_, ahead), (_, assigned) = frames
    assert isinstance(ahead, TilesAhead) and isinstance(assigned, Assignment)
    assert ahead.number == assigned.number and ahead.images == assigned.images
    assert assigned.rows_from == PageSource("e instance", "e", 1) and not assigned.promised
    fleet.outbox.clear()
    encoder = next(member for member in fleet.members if member.name == "e")
    assert encoder.sent_encode_s == pytest.approx(0.06) and encoder.streams == 0
    fleet.heard("e", TileAsked(ahead.number, wire_key(one.key), 40, 20), 0.0)
    assert sent_to(fleet, "e") == [TileSent(ahead.number, wire_key(one.key), 40, b"p" * 8)]
    fleet.heard("t", StepNews(ReplicaLoad(), (WireStart(assigned.number, 0.1, 0),)), 0.1)
    assert sent_to(fleet, "e") == [Cancel(ahead.number)] and encoder.sent_encode_s == 0.0
    asked_of(fleet, 2, one)
    assert not sent_to(fleet, "e"), "the other replica has pages of this prompt"


def test_a_lost_encoder_loses_no_request() -> None:
    fleet = ReplicaFleet(16, sooner=always)
    joined(fleet, "e", "encode")
    joined(fleet, "t", "both")
    asked_of(fleet, 1, tile(1))
    fleet.outbox.clear()
    fleet.lost("e", 0.1)
    assert not fleet.outbox and fleet.num_waiting == 0
    asked_of(fleet, 2, tile(2))
    (assigned,) = sent_to(fleet, "t")
    assert isinstance(assigned, Assignment) and assigned.rows_from is None
    joined(fleet, "e", "encode")
    fleet.outbox.clear()
    fleet.lost("t", 0.2)
    assert not sent_to(fleet, "e") and fleet.num_waiting == 2, "it has no language model"
    joined(fleet, "t", "both")
    found = [frame for name, frame in fleet.outbox if name == "t"]
    assert len(found) == 2 and all(isinstance(each, Assignment) for each in found)


def test_an_encoder_that_is_silent_for_a_moment_encodes_where_there_is_no_other() -> None:
    fleet = ReplicaFleet(16, sooner=always)
    joined(fleet, "e", "encode")
    joined(fleet, "t", "both")
    fleet.heard("t", Beat(ReplicaLoad()), 2.0)
    fleet.tick(2.0)
    asked_of(fleet, 1, tile(1))
    assert [name for name, _ in fleet.outbox] == ["e", "t"]
    joined(fleet, "f", "encode")
    fleet.heard("f", Beat(ReplicaLoad()), 2.0)
    fleet.outbox.clear()
    asked_of(fleet, 2, tile(2))
    assert [name for name, _ in fleet.outbox] == ["f", "t"]


def test_a_text_never_goes_to_a_replica_that_encodes() -> None:
    fleet = ReplicaFleet(16, sooner=always)
    joined(fleet, "e", "encode")
    joined(fleet, "t", "both")
    for number in range(6):
        fleet.add(plain(number))
    assert {name for name, _ in fleet.outbox} == {"t"}
