"""Holds requests with images, and jobs to encode images for other replicas, until the front (API server) has sent the
missing pixels. The module uses no socket and no thread.

    begin(link_id, work) -> the assignments and jobs whose pixels have all come
    came(link_id, sent)  -> the same, after a piece of a tile has come
    asks                 the questions to send, each with its connection

The pixels of each tile are sent once. At most WINDOW_BYTES are under way over a connection, in pieces, so that frames
of other requests wait for one piece and not for a whole image.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from twostroke.distributed.replica.page_feeds import LinkId
from twostroke.distributed.wire.frames import (
    TILE_PIECE_BYTES,
    Assignment,
    TileAsked,
    TilesAhead,
    TileSent,
    WireSpan,
)
from twostroke.distributed.wire.translate import EncodeJob, seen_by
from twostroke.types.images import ImageTile, key_of

WINDOW_BYTES = 4 * TILE_PIECE_BYTES
KEPT_BYTES = 64 << 20
"""The most bytes of pixels that are kept after the last request that used them, because the next turn of a chat has the
same images."""
HELD_BYTES = 256 << 20
"""While requests hold this many bytes of pixels, the replica asks for no more tiles."""
MOST_TILE_BYTES = 256 << 20
MOST_POSITIONS = 1 << 31

Wanting = Assignment | TilesAhead
Waiting = tuple[LinkId, Assignment | EncodeJob]
"""The connection of a front (API server), and an assignment or encode job whose pixels have all come."""


@dataclass(eq=False, slots=True)
class _Pull:
    """A tile whose pixels are fetched from a front (API server). data: the pixels that have arrived. asked: the number
    of bytes that were asked for.

    source: the front's connection, and the number of the request or job under which the pixels are asked for; None
    before they are asked for.
    """

    span: WireSpan
    data: bytearray = field(default_factory=bytearray)
    asked: int = 0
    source: tuple[LinkId, int] | None = None

    @property
    def size(self) -> int:
        return _bytes_of(self.span)


class TilePulls:
    """Fetches the pixels of images from fronts (API servers), and holds assignments and encode jobs until their pixels
    have come. Only one thread at a time may use it. held_bytes: while requests hold this many bytes of pixels, no more
    are asked for. kept_bytes: the most bytes that are kept after the last request that used them."""

    def __init__(self, held_bytes: int = HELD_BYTES, kept_bytes: int = KEPT_BYTES) -> None:
        self.asks: deque[tuple[LinkId, TileAsked]] = deque()
        self.received_bytes = 0
        self._held_bytes, self._kept_bytes = held_bytes, kept_bytes
        self._waiting: list[tuple[LinkId, Wanting]] = []
        self._pulls: OrderedDict[bytes, _Pull] = OrderedDict()  # the first entries are asked for first
        self._live: WeakValueDictionary[bytes, ImageTile] = WeakValueDictionary()
        self._kept: OrderedDict[bytes, ImageTile] = OrderedDict()
        self._whole: dict[bytes, ImageTile] = {}  # whole tiles, kept until all requests waiting with them have gone on
        self._under_way: Counter[LinkId] = Counter()

    def __len__(self) -> int:
        """The number of requests (Assignment frames) and encode jobs that wait for pixels."""
        return len(self._waiting)

    def begin(self, link_id: LinkId, work: Wanting) -> list[Waiting]:
        """Takes a request or encode job, and asks for its missing tiles. Returns all work whose tiles are complete
        now. Raises ValueError for invalid images."""
        for span in work.images:
            _check(span, MOST_POSITIONS if isinstance(work, TilesAhead) else len(work.request.prompt_token_ids))
        for span in work.images:
            if (tile := self._known(span.key)) is not None:
                self._whole[span.key] = tile
            elif span.key not in self._pulls:
                self._pulls[span.key] = _Pull(span)
        self._waiting.append((link_id, work))
        return self._ready()

    def came(self, link_id: LinkId, sent: TileSent) -> list[Waiting]:
        """Takes a piece of a tile's pixels. A piece that was not asked for is ignored. Returns the requests and
        encode jobs whose tiles are complete now."""
        self._under_way[link_id] = max(0, self._under_way[link_id] - 1)
        pull = self._pulls.get(sent.key)
        if pull is not None and not sent.data and pull.source == (link_id, sent.number):
            self._ask_elsewhere(pull, (link_id, sent.number))
        elif pull is not None and sent.data and sent.first == len(pull.data):
            pull.data += sent.data[: pull.size - len(pull.data)]
            self.received_bytes += len(sent.data)
            if len(pull.data) == pull.size:
                self._keep(pull)
        return self._ready()

    def cancel(self, link_id: LinkId, number: int | None = None) -> None:
        """Forgets a request or encode job that waits for pixels; without a number, all those of this connection."""
        self._waiting = [
            (link, work) for link, work in self._waiting if link != link_id or number not in (None, work.number)
        ]
        if number is None:
            self._under_way.pop(link_id, None)
        for pull in list(self._pulls.values()):
            if pull.source is not None and pull.source[0] == link_id and number in (None, pull.source[1]):
                self._ask_elsewhere(pull, None)
        self._forget_unwanted()
        self.ask()

    def waits(self, link_id: LinkId, number: int) -> bool:
        """Returns whether the request or encode job of this number waits for pixels."""
        return any(link == link_id and work.number == number for link, work in self._waiting)

    def _known(self, key: bytes) -> ImageTile | None:
        found = self._live.get(key)
        if found is not None and key in self._kept:
            self._kept.move_to_end(key)
        return found

    def _ready(self) -> list[Waiting]:
        """Removes and returns the requests and encode jobs whose tiles have all come."""
        ready, waiting = list[Waiting](), list[tuple[LinkId, Wanting]]()
        for link_id, work in self._waiting:
            tiles = {span.key: tile for span in work.images if (tile := self._known(span.key)) is not None}
            if all(span.key in tiles for span in work.images):
                ready.append((link_id, seen_by(work, tiles)))
            else:
                waiting.append((link_id, work))
        self._waiting = waiting
        self._forget_unwanted()
        self.ask()
        return ready

    def _forget_unwanted(self) -> None:
        wanted = {span.key for _, work in self._waiting for span in work.images}
        for key in [key for key in self._pulls if key not in wanted]:
            del self._pulls[key]
        self._whole = {key: tile for key, tile in self._whole.items() if key in wanted}

    def _keep(self, pull: _Pull) -> None:
        span = pull.span
        size, pixels = (span.lines, span.columns, span.width, span.height), bytes(pull.data)
        tile = ImageTile(key_of(span.key), *size, pixels, span.sheet)
        del self._pulls[span.key]
        self._live[span.key] = self._kept[span.key] = self._whole[span.key] = tile
        while sum(len(each.pixels) for each in self._kept.values()) > self._kept_bytes and len(self._kept) > 1:
            self._kept.popitem(last=False)

    def _ask_elsewhere(self, pull: _Pull, refused: tuple[LinkId, int] | None) -> None:
        """Lets a tile's missing pixels be asked for again, under another request or job that contains the tile. Called
        when the front (API server) that was asked sends no more. refused: the request or job that has ended at that
        front; it is dropped."""
        if refused is not None:
            self._waiting = [(link, work) for link, work in self._waiting if (link, work.number) != refused]
        pull.source, pull.asked = None, len(pull.data)

    def ask(self) -> None:
        """Asks for the next pieces of tiles, as far as the limits of bytes under way and of memory allow. The caller
        repeats the call, because memory becomes free without notice when requests end."""
        first = {span.key for _, work in self._waiting[:1] for span in work.images}
        for key, pull in sorted(self._pulls.items(), key=lambda each: each[0] not in first):
            if pull.source is None and (pull.data or self._has_room(pull, first)):
                pull.source = next(
                    (link, work.number) for link, work in self._waiting if any(key == span.key for span in work.images)
                )
            if pull.source is None:
                return  # later tiles wait for the same room
            link_id, number = pull.source
            while pull.asked < pull.size and self._under_way[link_id] * TILE_PIECE_BYTES < WINDOW_BYTES:
                count = min(TILE_PIECE_BYTES, pull.size - pull.asked)
                self.asks.append((link_id, TileAsked(number, key, pull.asked, count)))
                self._under_way[link_id] += 1
                pull.asked += count

    def _has_room(self, pull: _Pull, first: set[bytes]) -> bool:
        """Returns whether there is memory for this tile. first: the tiles of the oldest request, which may exceed the
        limit where no running request holds pixels."""
        idle = {key for key in self._kept if key not in self._whole}
        sizes = {key: len(tile.pixels) for key, tile in list(self._live.items()) if key not in idle}
        alone = pull.span.key in first and not sizes.keys() - self._whole.keys()
        sizes |= {key: each.size for key, each in self._pulls.items() if each.source is not None}
        return alone or sum(sizes.values()) + pull.size <= self._held_bytes


def _check(span: WireSpan, length: int) -> None:
    rows = span.lines * span.columns
    end = span.first + (span.count or rows - span.skipped)
    inside = 0 < end - span.first <= rows - span.skipped and end <= length
    if span.sheet is not None:
        inside = inside and span.sheet.shape == (span.lines, span.columns) and span.sheet.squares > 0
    if (canvas := span.canvas) is not None:
        height, width = canvas.top + canvas.height, canvas.left + canvas.width
        inside = inside and 0 < height <= canvas.lines <= length and 0 < width <= canvas.columns <= length
        inside = inside and min(canvas.top, canvas.left) >= 0 and (not canvas.ends or end <= canvas.ends <= length)
    if not (inside and 0 < _bytes_of(span) <= MOST_TILE_BYTES):
        raise ValueError("An image of this request has no place in its prompt.")


def _bytes_of(span: WireSpan) -> int:
    return 3 * span.width * span.height
