"""The encoder of images: tiles in, image rows out; and the rows of a step that come from images.

Rows of tiles are kept up to a number of bytes, the latest used ones. A tile that was dropped is encoded again, with the
same bits: an encode is one step of one sequence, whatever happens between its pieces.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import OpPart
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.types.images import NOTHING_ENCODED, EncodedTiles, ImageSpan, ImageTile
from twostroke.types.plan import Plan
from twostroke.types.spec.formats import PAGE_TOKENS

PIECES_S = 0.1
"""Seconds after which a step next to streams begins no further piece."""


class PatchLayout(Struct, frozen=True):
    """How a square tile becomes rows of pixels. side: the side of a patch. grid: patches of a side. merge: see `Sight`.

    values: (256, 3) what each byte of red, green and blue means.
    """

    side: int
    grid: int
    merge: int
    values: F32Array

    def order(self) -> I32Array:
        """The place in the grid of each patch. Those of one image row are neighbours, row by row."""
        groups = self.grid // self.merge
        places = np.arange(self.grid**2, dtype=np.int32).reshape(groups, self.merge, groups, self.merge)
        return np.ascontiguousarray(places.transpose(0, 2, 1, 3).reshape(-1))

    def patches(self, tile: ImageTile) -> F32Array:
        """(patches, 3 * side * side): red of all pixels of a patch, then green, then blue."""
        pixels: NDArray[np.uint8] = np.frombuffer(tile.pixels, np.uint8).reshape(tile.height, tile.width, 3)
        edge = self.grid * self.side
        cut = pixels[:edge, :edge].reshape(self.grid, self.side, self.grid, self.side, 3)
        bytes_of = cut.transpose(0, 2, 4, 1, 3).reshape(self.grid**2, 3, -1)[self.order()]
        found = np.empty(bytes_of.shape, np.float32)
        for channel in range(3):
            found[:, channel] = self.values[:, channel][bytes_of[:, channel]]
        return found.reshape(len(found), -1)


class ImageEncoder:
    """One tile at a time, in pieces: what lies between two of them stays in the encoder's own memory.

    pieces: the body, one part after the other, and the head. pixels: the value that takes patches. rows: image rows of
    a tile.
    """

    def __init__(
        self, pieces: Sequence[Forward], memory: StepMemory, pixels: Value, layout: PatchLayout, rows: int
    ) -> None:
        self._pieces, self._memory, self._pixels, self._layout = pieces, memory, pixels, layout
        self._sizes = StepSizes(layout.grid**2, 1, 0)
        self._num_rows, self._next = rows, 0
        self.tile: ImageTile | None = None
        self.num_encoded = 0
        count = self._sizes.tokens
        memory.token_ids[:count] = layout.order()
        memory.positions[:count] = slots = np.arange(count, dtype=np.int32)
        memory.slots[:count] = slots
        memory.batch.row_starts[:2] = [0, count]
        memory.batch.context_tokens[0] = count
        pages = -(-count // PAGE_TOKENS)
        memory.batch.page_table[0, :pages] = np.arange(pages)

    def begin(self, tile: ImageTile) -> None:
        """Work on this tile from now on; a tile that is not finished is given up."""
        self.tile, self._next = tile, 0
        self._memory.fill(self._pixels, self._sizes, self._layout.patches(tile))

    def advance(self) -> F32Array | None:
        """One piece of the tile. -> its rows (rows, width of the text model) after the last piece, else None."""
        last = self._next == len(self._pieces) - 1
        if last:
            self._memory.choose_logit_rows(np.arange(self._num_rows, dtype=np.int32))
        found = self._pieces[self._next](self._sizes._replace(logit_rows=self._num_rows if last else 0))
        self._next += 1
        if not last:
            return None
        self.tile = None
        self.num_encoded += 1
        return found.copy()

    def encode(self, tile: ImageTile) -> F32Array:
        """All pieces."""
        self.begin(tile)
        while (found := self.advance()) is None:
            pass
        return found


def pieces_of(program: Program) -> tuple[Program, ...]:
    """An encoder's program in parts of about a layer each, the head last. They share one memory: that of the whole."""
    ends = [place + 1 for place, call in enumerate(program.body) if call.PART is OpPart.ATTENTION]
    edges = [0, *ends, len(program.body)]
    body = [program.body[begin:end] for begin, end in zip(edges, edges[1:], strict=False) if begin < end]
    return (*(replace(program, body=part, head=()) for part in body), replace(program, body=()))


class KeptRows:
    """Rows of tiles by their keys, at most max_bytes of them next to the latest tile."""

    def __init__(self, encoder: ImageEncoder, max_bytes: int) -> None:
        self._encoder, self._max_bytes = encoder, max_bytes
        self._rows: OrderedDict[int, F32Array] = OrderedDict()
        self._finished: set[int] = set()
        self.num_bytes = self.num_found = self.num_pieces = 0

    def of(self, tile: ImageTile) -> F32Array:
        """The tile's rows, kept or computed now; a tile that was begun is finished first."""
        while tile.key not in self._rows:
            self.work(tile)
        self._rows.move_to_end(tile.key)
        self.num_found += 1
        return self._rows[tile.key]

    def work(self, tile: ImageTile) -> bool:
        """One piece of the tile that was begun; where none was, of this one. -> whether this one is finished."""
        if tile.key in self._rows:
            self._finished.add(tile.key)
            return True
        if self._encoder.tile is None:
            self._encoder.begin(tile)
        own = self._encoder.tile or tile
        self.num_pieces += 1
        made = self._encoder.advance()
        if made is not None:
            self._keep(own.key, made)
        return tile.key in self._rows

    def _keep(self, key: int, made: F32Array) -> None:
        self._finished.add(key)
        self._rows[key] = made
        self.num_bytes += made.nbytes
        while self.num_bytes > self._max_bytes and len(self._rows) > 1:
            self.num_bytes -= self._rows.popitem(last=False)[1].nbytes

    def give_up(self, tile: ImageTile) -> None:
        """Nothing more is done for the tile before its rows are needed."""
        self._encoder.tile = None
        self._finished.add(tile.key)

    def take_finished(self) -> frozenset[int]:
        """The keys of what was finished since the last call."""
        found = frozenset(self._finished)
        self._finished.clear()
        return found


class ImageRows:
    """Writes the image rows of each step where the text model's program takes them, and works on the tile that a plan
    names. given: the value that takes rows. clock: seconds."""

    def __init__(self, kept: KeptRows, memory: StepMemory, given: Value, clock: Callable[[], float]) -> None:
        self._kept, self._memory, self._given, self._clock = kept, memory, given, clock
        self._marked = False

    def write(self, plan: Plan, sizes: StepSizes) -> EncodedTiles:
        """Marks and rows of the plan's positions that show images; pieces of its tile for as long as a step allows."""
        marks = self._memory.row_marks
        if self._marked:
            marks[:] = 0
            self._marked = False
        if plan.encode is None and not any(sequence.request.images for sequence in plan.sequences):
            return NOTHING_ENCODED
        begin_s, before = self._clock(), self._kept.num_pieces
        if plan.encode is not None:
            self._work(plan.encode, begin_s + PIECES_S)
        target = self._memory.value(self._given, sizes)
        first_row = 0
        for sequence in plan.sequences:
            for begin, rows in self._rows_in(sequence.request.images, sequence.start, sequence.end):
                at = first_row + begin - sequence.start
                target[at : at + len(rows)] = rows
                marks[at : at + len(rows)] = 1
                self._marked = True
            first_row += sequence.num_tokens
        seconds = self._clock() - begin_s if self._kept.num_pieces > before else 0.0
        return EncodedTiles(self._kept.take_finished(), seconds)

    def _work(self, tile: ImageTile, until_s: float) -> None:
        """Pieces of a tile. One that fails is given up and counts as done: the step that needs it fails by itself."""
        try:
            while not self._kept.work(tile):
                if self._clock() >= until_s:
                    break
        except Exception:
            self._kept.give_up(tile)

    def _rows_in(self, spans: Iterable[ImageSpan], start: int, end: int) -> Iterable[tuple[int, F32Array]]:
        """(first position, rows) of each tile's part in positions [start, end)."""
        for span in spans:
            begin, stop = max(span.first, start), min(span.end, end)
            if begin < stop:
                yield begin, self._kept.of(span.tile)[begin - span.first : stop - span.first]
