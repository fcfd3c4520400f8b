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

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import OpPart
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.patch_layout import PatchLayout
from twostroke.runner.text_places import places_of
from twostroke.types.images import NOTHING_ENCODED, PIECES_S, EncodedTiles, ImageSpan, ImageTile
from twostroke.types.plan import Plan
from twostroke.types.spec.formats import PAGE_TOKENS


class TowerValues(Struct, frozen=True, eq=False):
    """Values of an encoder's program. pixels takes patches, places their learned places. added: the rows that are added
    after layers of the language model, next to its result."""

    pixels: Value
    places: Value | None = None
    added: tuple[Value, ...] = ()


class ImageEncoder:
    """One tile at a time, in pieces: what lies between two of them stays in the encoder's own memory.

    pieces: the body, one part after the other, and the head. whole_layers: pieces that see the whole tile where the
    layout has windows. A window is a sequence of its own, because its patches see each other alone.
    """

    def __init__(
        self,
        pieces: Sequence[Forward],
        memory: StepMemory,
        values: TowerValues,
        layout: PatchLayout,
        whole_layers: Sequence[int] = (),
    ) -> None:
        self._pieces, self._memory, self._values, self._layout = pieces, memory, values, layout
        self._whole_layers = frozenset(whole_layers)
        self._next = 0
        self.tile: ImageTile | None = None
        self.num_encoded = 0

    def begin(self, tile: ImageTile) -> None:
        """Work on this tile from now on; a tile that is not finished is given up."""
        self.tile, self._next = tile, 0
        memory, order = self._memory, self._layout.order(tile.lines, tile.columns)
        count, (_, width) = order.rows, self._layout.grid(tile)
        sizes = StepSizes(count, 1, 0)
        memory.token_ids[: len(order.lines)] = order.lines * width + order.columns
        memory.positions[:count] = np.arange(count)
        for table in memory.row_turns:
            table.write(np.stack([order.lines, order.columns]))
        memory.fill(self._values.pixels, sizes, self._layout.patches(tile))
        if self._values.places is not None:
            memory.fill(self._values.places, sizes, self._layout.places(tile))

    def advance(self) -> F32Array | None:
        """One piece of the tile. -> its rows after the last piece, else None: (rows, width of the text model), and as
        much again for each of the rows that are added."""
        tile = self.tile
        if tile is None:
            raise ValueError("no tile was begun")
        order, memory = self._layout.order(tile.lines, tile.columns), self._memory
        windows = order.windows if order.windows and self._next not in self._whole_layers else (order.rows,)
        _write_sequences(memory, windows)
        last = self._next == len(self._pieces) - 1
        if last:
            memory.choose_logit_rows(order.back)
        sizes = StepSizes(order.rows, len(windows), tile.rows if last else 0)
        found = self._pieces[self._next](sizes)
        self._next += 1
        if not last:
            return None
        self.tile = None
        self.num_encoded += 1
        return np.concatenate([found, *(memory.numbers(value, sizes) for value in self._values.added)], axis=1)

    def encode(self, tile: ImageTile) -> F32Array:
        """All pieces."""
        self.begin(tile)
        while (found := self.advance()) is None:
            pass
        return found


def _write_sequences(memory: StepMemory, lengths: Sequence[int]) -> None:
    """The rows of a step as sequences of these lengths, each on pages of its own."""
    count, total = len(lengths), sum(lengths)
    starts = np.cumsum([0, *lengths])
    pages = -(-np.array(lengths) // PAGE_TOKENS)
    firsts = np.cumsum(pages) - pages
    memory.batch.row_starts[: count + 1] = starts
    memory.batch.context_tokens[:count] = lengths
    for index, (first, own) in enumerate(zip(firsts, pages, strict=True)):
        memory.batch.page_table[index, :own] = np.arange(first, first + own)
    shifts = firsts * PAGE_TOKENS - starts[:-1]
    memory.slots[:total] = np.arange(total) + np.repeat(shifts, lengths)


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
    names. given: the values that take rows, the embedding's first. clock: seconds. filler: the token id of positions
    that hold image rows; None for that of the prompt."""

    def __init__(
        self,
        kept: KeptRows,
        memory: StepMemory,
        given: Sequence[Value],
        clock: Callable[[], float],
        filler: int | None = None,
    ) -> None:
        self._kept, self._memory, self._given, self._clock = kept, memory, tuple(given), clock
        self._filler = filler
        self._marked = False

    def write(self, plan: Plan, sizes: StepSizes) -> EncodedTiles:
        """Marks and rows of the plan's positions that show images; pieces of its tile for as long as a step allows."""
        marks, ends = self._memory.row_marks, self._memory.row_ends
        if self._marked:
            marks[:], ends[:] = 0, 0
            self._marked = False
        for table in self._memory.row_turns:
            table.write(self._places(plan, sizes))
        if plan.encode is None and not any(sequence.request.images for sequence in plan.sequences):
            return NOTHING_ENCODED
        begin_s, before = self._clock(), self._kept.num_pieces
        if plan.encode is not None:
            self._work(plan.encode, begin_s + PIECES_S)
        targets = [self._memory.value(value, sizes) for value in self._given]
        first_row = 0
        for sequence in plan.sequences:
            for begin, rows, end in self._rows_in(sequence.request.images, sequence.start, sequence.end):
                at = slice(first_row + begin - sequence.start, first_row + begin - sequence.start + len(rows))
                for target, own in zip(targets, np.split(rows, len(targets), axis=1), strict=True):
                    target[at] = own
                marks[at], ends[at] = 1, end
                if self._filler is not None:
                    self._memory.token_ids[at] = self._filler
                self._marked = True
            first_row += sequence.num_tokens
        seconds = self._clock() - begin_s if self._kept.num_pieces > before else 0.0
        return EncodedTiles(self._kept.take_finished(), seconds)

    def _places(self, plan: Plan, sizes: StepSizes) -> I32Array:
        """Time, height and width (3, rows) of all rows of a step."""
        made = np.repeat(self._memory.positions[None, : sizes.tokens], 3, axis=0)
        first_row = 0
        for sequence in plan.sequences:
            if sequence.request.images:
                own = places_of(sequence.request.images, sequence.start, sequence.end)
                made[:, first_row : first_row + sequence.num_tokens] = own
            first_row += sequence.num_tokens
        return made

    def _work(self, tile: ImageTile, until_s: float) -> None:
        """Pieces of a tile. One that fails is given up and counts as done: the step that needs it fails by itself."""
        try:
            while not self._kept.work(tile):
                if self._clock() >= until_s:
                    break
        except Exception:
            self._kept.give_up(tile)

    def _rows_in(self, spans: Iterable[ImageSpan], start: int, end: int) -> Iterable[tuple[int, F32Array, int]]:
        """(first position, rows, up to where they see) of each tile's part in positions [start, end)."""
        for span in spans:
            begin, stop = max(span.first, start), min(span.end, end)
            if begin < stop:
                skipped = span.skipped - span.first
                rows = self._kept.of(span.tile)[begin + skipped : stop + skipped]
                yield begin, rows, span.end if span.together else 0
