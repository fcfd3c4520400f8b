"""Pixels of images travel to a replica once for each tile, in pieces, whatever is cancelled or lost in the meantime."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.fleet.world import ARITHMETIC, request_of
from twostroke.distributed.cluster.framing import FrameReader, encode
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.replica.tile_pulls import WINDOW_BYTES, TilePulls, Waiting
from twostroke.distributed.wire.frames import (
    TILE_PIECE_BYTES,
    Assignment,
    ReplicaFacts,
    TileAsked,
    TilesAhead,
    TileSent,
)
from twostroke.distributed.wire.translate import EncodeJob, wire_key, wire_request, wire_spans
from twostroke.types.images import Canvas, ImageSpan, ImageTile, Sheet, key_of
from twostroke.types.request import Request


def plain(number: int) -> Request:
    return request_of(random.Random(number), f"r{number}", 0.0)


def tile(number: int, side: int = 20) -> ImageTile:
    pixels = random.Random(number).randbytes(3 * side * side)
    return ImageTile(key_of(number.to_bytes(32, "big")), 1, 2, side, side, pixels)


def work(number: int, *tiles: ImageTile) -> Assignment:
    request = replace(plain(number), prompt_token_ids=tuple(range(2, 2 + 2 * len(tiles) + 1)))
    spans = tuple(ImageSpan(2 * place, each, 0, 2) for place, each in enumerate(tiles))
    sent = Assignment(number, wire_request(replace(request, images=spans), 0.0), images=wire_spans(spans))
    (found,) = FrameReader().feed(encode(sent))
    assert isinstance(found, Assignment)
    return found


def answer(asked: TileAsked, *tiles: ImageTile) -> TileSent:
    found = {wire_key(each.key): each.pixels for each in tiles}
    piece = found.get(asked.key, b"")[asked.first : asked.first + asked.count]
    return TileSent(asked.number, asked.key, asked.first, piece)


def run(pulls: TilePulls, *tiles: ImageTile) -> list[Waiting]:
    """Answers all questions until there are none."""
    ready = []
    while pulls.asks:
        link, asked = pulls.asks.popleft()
        ready += pulls.came(link, answer(asked, *tiles))
    return ready


def pixels(waiting: Waiting) -> list[bytes]:
    return [span.tile.pixels for span in waiting[1].request.images]


def test_a_request_goes_on_when_all_its_pixels_are_here() -> None:
    pulls, one, other = TilePulls(), tile(1), tile(2)
    assert pulls.begin(1, work(7, one, other, one)) == []
    assert len(pulls) == 1 and pulls.waits(1, 7)
    (found,) = run(pulls, one, other)
    assert pixels(found) == [one.pixels, other.pixels, one.pixels]
    assert [(span.first, span.end, span.tile.key) for span in found[1].request.images] == [
        *((0, 2, one.key), (2, 4, other.key), (4, 6, one.key))
    ]
    assert not found[1].images and not len(pulls)


def test_a_tile_travels_once() -> None:
    pulls, one = TilePulls(), tile(1)
    pulls.begin(1, work(7, one))
    pulls.begin(2, work(8, one))  # the front of another client
    assert len(pulls.asks) == 1
    assert len(run(pulls, one)) == 2
    assert len(pulls.begin(1, work(9, one))) == 1, "the next turn of the chat"
    assert pulls.received_bytes == len(one.pixels)


def test_what_is_under_way_is_bounded_and_a_small_image_of_another_link_passes() -> None:
    pulls, large, small = TilePulls(), tile(1, 1000), tile(2)
    pulls.begin(1, work(7, large))
    assert sum(asked.count for _, asked in pulls.asks) == WINDOW_BYTES
    assert max(asked.count for _, asked in pulls.asks) == TILE_PIECE_BYTES
    held = list(pulls.asks)
    pulls.asks.clear()
    pulls.begin(2, work(8, small))
    ((link, asked),) = pulls.asks
    assert link == 2
    pulls.asks.clear()
    assert len(pulls.came(link, answer(asked, small))) == 1
    pulls.asks.extend(held)
    (found,) = run(pulls, large)
    assert pixels(found) == [large.pixels]


def test_it_is_asked_for_elsewhere_where_a_request_is_cancelled_or_a_link_is_lost() -> None:
    pulls, one = TilePulls(), tile(1, 600)
    pulls.begin(1, work(7, one))
    pulls.begin(2, work(8, one))
    link, asked = pulls.asks.popleft()
    assert link == 1 and not pulls.came(link, answer(asked, one))
    late = list(pulls.asks)
    pulls.asks.clear()
    pulls.cancel(1, 7)
    assert {link for link, _ in pulls.asks} == {2}
    assert not [each for link, asked in late for each in pulls.came(link, TileSent(7, asked.key, asked.first, b""))]
    (found,) = run(pulls, one)
    assert pixels(found) == [one.pixels]
    other = tile(3, 600)
    pulls.begin(3, work(9, other))
    pulls.asks.clear()
    pulls.cancel(3)
    assert not len(pulls) and not pulls.asks


def test_an_assignment_that_its_front_does_not_know_any_more_waits_no_longer() -> None:
    pulls, one = TilePulls(), tile(1)
    pulls.begin(1, work(7, one))
    assert run(pulls) == [] and not len(pulls) and not pulls.waits(1, 7)


def test_requests_hold_no_more_than_the_bound_and_none_waits_for_ever() -> None:
    size = len(tile(0, 100).pixels)
    pulls, tiles = TilePulls(held_bytes=2 * size, kept_bytes=0), [tile(number, 100) for number in range(8)]
    running: list[Waiting] = []
    for number in range(0, 8, 2):
        running += pulls.begin(1, work(number + 1, *tiles[number : number + 2]))
    done = 0
    while len(pulls) or running:
        running += run(pulls, *tiles)
        held = {span.tile.key for _, each in running for span in each.request.images}
        assert len(held) <= 3, "what is kept is one tile more"
        assert running, "nobody waits for ever"
        done += 1
        running.pop(0)
        pulls.ask()
    assert done == 4


@pytest.mark.parametrize("seed", range(30))
def test_in_any_order_of_calls(seed: int) -> None:
    """Work is begun, cancelled, lost, answered late and answered twice. All work that was not given up gets its own
    pixels."""
    dice, tiles = random.Random(seed), [tile(number, 300) for number in range(4)]
    pulls, asked_of = TilePulls(held_bytes=600_000, kept_bytes=300_000), dict[tuple[int, int], list[ImageTile]]()
    ready, unanswered = list[Waiting](), list[tuple[int, TileAsked]]()
    for number in range(1, 40):
        link = dice.randrange(3)
        asked_of[link, number] = own = dice.sample(tiles, dice.randint(1, 3))
        ready += pulls.begin(link, work(number, *own))
        if dice.random() < 0.2:
            gone = dice.choice(list(asked_of))
            pulls.cancel(*gone)
            del asked_of[gone]
        if dice.random() < 0.1:
            pulls.cancel(link)
            unanswered = [each for each in unanswered if each[0] != link]
            asked_of = {name: own for name, own in asked_of.items() if name[0] != link}
        unanswered += pulls.asks
        pulls.asks.clear()
        while unanswered and dice.random() < 0.8:
            to, asked = unanswered.pop(0)
            mine = asked_of.get((to, asked.number), [])
            ready += pulls.came(to, answer(asked, *mine))
        ready = [(to, found) for to, found in ready if not check(to, found, asked_of)]
    for _ in range(1000):
        unanswered += pulls.asks
        pulls.asks.clear()
        if not unanswered:
            pulls.ask()
            if not pulls.asks:
                break
            continue
        to, asked = unanswered.pop(0)
        for link, found in pulls.came(to, answer(asked, *asked_of.get((to, asked.number), []))):
            check(link, found, asked_of)
    assert not len(pulls)
    assert not asked_of


def check(link: int, found: Assignment, asked_of: dict[tuple[int, int], list[ImageTile]]) -> bool:
    """Checks that the work has the right pixels and is over."""
    own = asked_of.pop((link, found.number), None)
    if own is not None:
        assert pixels((link, found)) == [each.pixels for each in own]
    return True


def test_a_grid_of_squares_keeps_its_sheet() -> None:
    """LLaVA-NeXT's tiles need their sheet. Without it their rows would be read as those of one square."""
    sheet = Sheet(2, 1, 1, 0, 0, 2, 1, 2, 1)
    plain_one = tile(1)
    one = ImageTile(plain_one.key, *sheet.shape, 20, 20, plain_one.pixels, sheet)
    request = replace(plain(1), prompt_token_ids=(1, 2, 3, 4))
    pulls = TilePulls()
    for number, sent in enumerate(((one,), (replace_shape(one),))):
        spans = wire_spans(tuple(ImageSpan(0, each, 0, 2) for each in sent))
        (asked,) = FrameReader().feed(encode(Assignment(number, wire_request(request, 0.0), images=spans)))
        assert isinstance(asked, Assignment)
        if number:
            with pytest.raises(ValueError, match="no place"):
                pulls.begin(1, asked)
            return
        assert pulls.begin(1, asked) == []
        ((_, found),) = run(pulls, one)
        assert isinstance(found, Assignment) and found.request.images[0].tile.sheet == sheet


@pytest.mark.parametrize("ends", [6, 0, 1, 9])
def test_an_image_keeps_its_places_on_a_canvas(ends: int) -> None:
    """An end that lies inside the image or after the prompt is refused."""
    request, one = replace(plain(1), prompt_token_ids=tuple(range(8))), tile(1)
    spans = (ImageSpan(2, one, 0, 2, canvas=Canvas(3, 4, 1, 2, 2, 2, ends)),)
    (asked,) = FrameReader().feed(encode(Assignment(1, wire_request(request, 0.0), images=wire_spans(spans))))
    assert isinstance(asked, Assignment)
    pulls = TilePulls()
    if ends in (1, 9):
        with pytest.raises(ValueError, match="no place"):
            pulls.begin(1, asked)
        return
    assert pulls.begin(1, asked) == []
    ((_, found),) = run(pulls, one)
    assert isinstance(found, Assignment) and found.request.images[0].canvas == spans[0].canvas


def replace_shape(one: ImageTile) -> ImageTile:
    """Lines and columns that do not belong to its sheet."""
    return ImageTile(one.key, 5, 5, one.width, one.height, one.pixels, one.sheet)


def test_tiles_to_be_encoded_for_others_come_in_the_same_way() -> None:
    pulls, one, other = TilePulls(), tile(1), tile(2)
    spans = tuple(ImageSpan(place, each, 0, 2) for place, each in ((900, one), (40, other), (7, one)))
    assert pulls.begin(1, TilesAhead(5, wire_spans(spans))) == [] and pulls.waits(1, 5)
    ((link, job),) = run(pulls, one, other)
    assert isinstance(job, EncodeJob) and (link, job.number) == (1, 5)
    assert [each.pixels for each in job.tiles] == [one.pixels, other.pixels]
    pulls.begin(1, TilesAhead(6, wire_spans((ImageSpan(0, tile(3)),))))
    pulls.cancel(1, 6)
    assert not len(pulls)


@pytest.mark.parametrize(
    ("first", "count", "skipped", "side"),
    [(4, 2, 0, 20), (0, 3, 0, 20), (0, 2, 2, 20), (0, 2, 0, 0), (0, 2, 0, 40_000)],
)
def test_images_that_cannot_be_are_refused(first: int, count: int, skipped: int, side: int) -> None:
    one = ImageTile(key_of(bytes(32)), 1, 2, side, side, b"")
    spans = wire_spans((ImageSpan(first, one, skipped, count),))
    asked = Assignment(1, replace(plain(1), prompt_token_ids=(1, 2, 3)), images=spans)
    with pytest.raises(ValueError, match="no place"):
        TilePulls().begin(1, asked)


def test_a_front_sends_pieces_of_what_its_streams_have_and_nothing_else() -> None:
    fleet, one = ReplicaFleet(16), tile(1)
    fleet.joined(ReplicaFacts("r", "i", "m", ARITHMETIC, 16, 1000, 500, 300, 8, 0.001, sight="s"), 0.0)
    fleet.add(replace(plain(1), images=(ImageSpan(0, one, 0, 2),)))
    name, sent = fleet.outbox.pop()
    assert isinstance(sent, Assignment) and not sent.request.images and sent.images[0].key == wire_key(one.key)
    replies = Counter[bytes]()
    for number, key in ((sent.number, wire_key(one.key)), (sent.number, bytes(32)), (99, wire_key(one.key))):
        fleet.heard(name, TileAsked(number, key, 10, 5), 0.0)
        found = fleet.outbox.pop()[1]
        assert isinstance(found, TileSent)
        replies[found.data] += 1
    assert replies == {one.pixels[10:15]: 1, b"": 2}
