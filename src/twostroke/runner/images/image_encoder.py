"""The encoder of images makes image rows from tiles (a tile is an image, or a part of one, that is encoded alone). It
also writes the rows of a step that come from images.

Rows of tiles are kept up to a number of bytes; the tiles that were used last are kept. A tile that was dropped is
encoded again, with the same bits: an encode is one step of one sequence, however it is divided into pieces.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

import numpy as np
from msgspec import Struct

from twostroke.cost.encode_cost import EncodeCost
from twostroke.cost.encode_pieces import EncodePiece
from twostroke.models.common.encoders import SightEncoder
from twostroke.ops.operands import F32Array
from twostroke.ops.program.folded import FoldPlace, fold_of
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.images.patch_layout import PatchLayout, PatchOrder
from twostroke.runner.images.sheets import read_sheet, squares_of
from twostroke.runner.images.step_images import NO_IMAGES, ImageInputs, PlacedRows, ShownRows, StepImages
from twostroke.runner.images.text_places import places_of
from twostroke.types.encode import AS_PREDICTED, EncodePace, PieceKind, PieceTime
from twostroke.types.images import NOTHING_ENCODED, EncodedTiles, ImageSpan, ImageTile
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.spec.formats import PAGE_TOKENS

FILLED_ROWS = 256
"""How many rows of pixels are made at a time. The arrays between the image's bytes and the rows then stay in caches.
For all patches of an image of 4,096 x 4,096 pixels, these arrays would take hundreds of megabytes, which no estimate of
the server's memory includes."""


class TowerValues(Struct, frozen=True, eq=False):
    """The inputs and outputs of an image encoder's program that the host reads or writes. pixels: the input for the
    pixels of patches. places: the input for learned position embeddings; None where the encoder has none. added:
    further outputs, which are added to hidden states after layers of the language model. fold: the place in the program
    where groups of neighbouring rows become one row each; None where there is none."""

    pixels: Value
    places: Value | None = None
    added: tuple[Value, ...] = ()
    fold: FoldPlace | None = None

    @classmethod
    def of(cls, encoder: SightEncoder, program: Program) -> TowerValues:
        """Returns the input and output values of an encoder's program. program: the program in its last form, after all
        passes on programs."""
        fold = fold_of(program)
        return cls(encoder.pixels, encoder.places, program.kept if fold is None else (), fold)


class ImageEncoder:
    """Encodes one tile at a time, in pieces. The values between two pieces stay in the encoder's own memory.

    parts: the programs that run one after the other, of which the last is the head. cost: divides a tile into pieces. A
    window of patches is run as a sequence of its own, because its patches see only each other.
    """

    def __init__(
        self,
        parts: Sequence[Forward],
        memory: StepMemory,
        values: TowerValues,
        layout: PatchLayout,
        cost: EncodeCost,
    ) -> None:
        self._parts, self._memory, self._values, self._layout, self.cost = parts, memory, values, layout, cost
        self._walk = cost.walk(0, 0)
        self._squares: list[ImageTile] = []
        self._rows: F32Array | None = None
        self._made: F32Array | None = None
        self.tile: ImageTile | None = None
        self.num_encoded = 0

    def begin(self, tile: ImageTile) -> None:
        """Begins to encode this tile. If another tile is not finished, the work on it is discarded."""
        self._squares = squares_of(tile)
        order = self._order(self._squares[0])
        self.tile, self._rows, self._made = tile, None, None
        self._walk = self.cost.walk_of(tile, order.rows)
        memory, (_, width) = self._memory, self._layout.grid(self._squares[0])
        memory.token_ids[: len(order.lines)] = order.lines * width + order.columns
        memory.positions[: order.rows] = np.arange(order.rows)

    def _order(self, square: ImageTile) -> PatchOrder:
        return self._layout.order(square.lines, square.columns)

    def advance(
        self, most_s: float = inf, *, least: bool = True, pace: EncodePace = AS_PREDICTED
    ) -> EncodePiece | None:
        """Computes the next piece of the tile and returns the piece. It has as many rows as are predicted to fit into
        `most_s` seconds. Returns None where no piece is left, or where the next piece does not fit. least: whether the
        smallest piece is computed even if it does not fit. pace: the ratio of real to predicted times. After the last
        piece, `take_rows` returns the rows. Raises ValueError where no tile was begun."""
        tile = self.tile
        if tile is None:
            raise ValueError("no tile was begun")
        piece = self._walk.take(most_s, least=least, pace=pace)
        if piece is None:
            return None
        if piece.kind is PieceKind.SHEET:
            self._read(tile, piece)
            return piece
        place, part = divmod(piece.part, len(self._parts))
        square = self._squares[place]
        order = self._order(square)
        if piece.kind is PieceKind.HEAD:
            self._join(piece, order, place * square.rows)
            return piece
        lengths = order.windows if self._walk.is_windowed(piece.part) else (piece.rows,)
        count = _write_sequences(self._memory, lengths, piece.first, piece.end)
        sizes = StepSizes(piece.end - piece.first, count, 0, piece.first)
        if part == 0:
            self._fill(square, piece, sizes)
        if piece.kind is PieceKind.FOLD:
            self._fold(piece, sizes)
        self._parts[part](sizes)
        return piece

    def _fill(self, square: ImageTile, piece: EncodePiece, sizes: StepSizes) -> None:
        """Writes the inputs of the encoder's first program for the rows of a piece: rotary positions, pixels and
        position embeddings. It works on FILLED_ROWS rows at a time."""
        memory = self._memory
        for first in range(piece.first, piece.end, FILLED_ROWS):
            own = slice(first, min(first + FILLED_ROWS, piece.end))
            block = StepSizes(own.stop - first, sizes.sequences, 0, first)
            for table in memory.row_turns:
                table.write(self._layout.turns(square, own), first)
            memory.fill(self._values.pixels, block, self._layout.patches(square, own))
            if self._values.places is not None:
                memory.fill(self._values.places, block, self._layout.places(square, own))

    def _fold(self, piece: EncodePiece, sizes: StepSizes) -> None:
        """Writes the inputs for the calls after the fold, where groups of neighbouring rows become one row each. The
        rows come from the outputs of the calls before the fold."""
        fold = self._values.fold
        if fold is None:
            raise ValueError("the program folds no rows")
        rows = StepSizes(fold.group * sizes.tokens, sizes.sequences, 0, fold.group * piece.first)
        made = self._memory.numbers(fold.source, rows).reshape(sizes.tokens, fold.target.width)
        self._memory.fill(fold.target, sizes, made)

    def _join(self, piece: EncodePiece, order: PatchOrder, before: int) -> None:
        """Runs the encoder's head for a piece, and stores its image rows. A row contains the input embedding, followed
        by one vector for each language layer after which a vector is added. before: the number of image rows of the
        squares (crops of the image) that were encoded earlier."""
        back = order.back[piece.first : piece.end]
        self._memory.choose_logit_rows(back)
        sizes = StepSizes(order.rows, 1, len(back))
        found = [self._parts[-1](sizes)]
        found += [self._memory.numbers(value, sizes) for value in self._values.added]
        if self._rows is None:
            shape = len(self._squares) * piece.rows, sum(each.shape[1] for each in found)
            self._rows = np.empty(shape, np.float32)
        np.concatenate(found, axis=1, out=self._rows[before + piece.first : before + piece.end])

    def _read(self, tile: ImageTile, piece: EncodePiece) -> None:
        """Makes the image rows of a piece of a whole image that is divided into squares, from the rows of these
        squares."""
        newline = self._layout.newline
        if self._rows is None or newline is None or tile.sheet is None:
            raise ValueError("no squares were encoded")
        if self._made is None:
            self._made = np.empty((piece.rows, self._rows.shape[1]), np.float32)
        own = slice(piece.first, piece.end)
        self._made[own] = read_sheet(tile.sheet, self._rows, newline, piece.first, piece.end)

    def take_rows(self) -> F32Array | None:
        """Returns the image rows of the tile if all of its pieces are computed, and forgets the tile. Otherwise returns
        None."""
        if self.tile is None or not self._walk.done:
            return None
        made = self._rows if self.tile.sheet is None else self._made
        self.tile, self._rows, self._made, self._squares = None, None, None, []
        self.num_encoded += 1
        return made

    def encode(self, tile: ImageTile, most_s: float = inf) -> F32Array:
        """Computes all pieces of a tile and returns its rows. most_s: the most predicted seconds of one piece."""
        self.begin(tile)
        while (found := self.take_rows()) is None:
            self.advance(most_s)
        return found


def _write_sequences(memory: StepMemory, lengths: Sequence[int], first: int, end: int) -> int:
    """Writes row starts, page tables and slots for rows [first, end) of an encoder's step into its memory. lengths: the
    number of rows of each sequence (attention window) of the whole step. Each sequence has pages of its own. Returns
    how many sequences have any of the rows."""
    starts = np.cumsum([0, *lengths])
    pages = -(-np.array(lengths) // PAGE_TOKENS)
    pages_before = np.cumsum(pages) - pages
    begin, stop = int(np.searchsorted(starts, first, "right")) - 1, int(np.searchsorted(starts, end, "left"))
    count = stop - begin
    memory.batch.row_starts[: count + 1] = np.clip(starts[begin : stop + 1], first, end) - first
    memory.batch.context_tokens[:count] = lengths[begin:stop]
    for index, place in enumerate(range(begin, stop)):
        own = np.arange(pages_before[place], pages_before[place] + pages[place])
        memory.batch.page_table[index, : len(own)] = own
    shifts = pages_before[begin:stop] * PAGE_TOKENS - starts[begin:stop]
    memory.slots[first:end] = np.arange(first, end) + np.repeat(shifts, np.diff(memory.batch.row_starts[: count + 1]))
    return count


class KeptRows:
    """Stores the image rows of tiles by the tiles' keys, at most max_bytes in all. The latest tile is stored even where
    its rows alone have more bytes. clock: returns seconds. before_piece: called before each piece of an encode; an
    error that it raises ends the call of `work`."""

    def __init__(self, encoder: ImageEncoder, max_bytes: int, clock: Callable[[], float]) -> None:
        self._encoder, self._max_bytes, self._clock = encoder, max_bytes, clock
        self._rows: OrderedDict[int, F32Array] = OrderedDict()
        self._finished: set[int] = set()
        self._dropped: set[int] = set()
        self._times: list[PieceTime] = []
        self.num_bytes = self.num_found = self.num_pieces = 0
        self.before_piece: Callable[[], None] = lambda: None

    @property
    def cost(self) -> EncodeCost:
        """The encoder's cost model, which predicts the time of each piece."""
        return self._encoder.cost

    def of(self, tile: ImageTile) -> F32Array:
        """Returns the tile's image rows, which are stored or computed now. A tile whose encoding has begun is finished
        first."""
        while tile.key not in self._rows:
            self.work(tile)
        self._rows.move_to_end(tile.key)
        self.num_found += 1
        return self._rows[tile.key]

    def made_of(self, tile: ImageTile) -> F32Array:
        """Computes the image rows of a tile without storing them. If another tile's encode has begun, its pieces are
        discarded."""
        return self._encoder.encode(tile)

    def find(self, key: int) -> F32Array | None:
        """Returns the image rows of a tile, or None where they are not stored."""
        found = self._rows.get(key)
        if found is not None:
            self._rows.move_to_end(key)
        return found

    def put(self, key: int, rows: F32Array) -> None:
        """Stores image rows that another process has computed."""
        if key not in self._rows:
            self._keep(key, rows)

    def work(self, tile: ImageTile, most_s: float = inf, pace: EncodePace = AS_PREDICTED) -> bool:
        """Computes pieces of the encode that has begun, which may be another tile's. If none has begun, it begins that
        of `tile`. At least one piece is computed. Together the pieces are predicted to take at most `most_s` seconds.
        pace: the ratio of real to predicted times. Returns whether `tile` is finished."""
        if tile.key in self._rows:
            self._finished.add(tile.key)
            return True
        if self._encoder.tile is None:
            self._encoder.begin(tile)
        own, spent_s = self._encoder.tile or tile, 0.0
        while (made := self._encoder.take_rows()) is None:
            self.before_piece()
            begin_s = self._clock()
            piece = self._encoder.advance(most_s - spent_s, least=not spent_s, pace=pace)
            if piece is None:
                return False
            self.num_pieces += 1
            self._times.append(PieceTime(piece.kind, piece.seconds, self._clock() - begin_s))
            spent_s += piece.seconds * pace.of(piece.kind)
        self._keep(own.key, made)
        return tile.key in self._rows

    def _keep(self, key: int, made: F32Array) -> None:
        self._finished.add(key)
        self._dropped.discard(key)
        self._rows[key] = made
        self.num_bytes += made.nbytes
        while self.num_bytes > self._max_bytes and len(self._rows) > 1:
            dropped, rows = self._rows.popitem(last=False)
            self.num_bytes -= rows.nbytes
            self._dropped.add(dropped)

    def give_up(self, tile: ImageTile) -> None:
        """Ends the encode that has begun, and reports this tile as finished, although it has no rows. Its encode begins
        anew when its rows are needed."""
        self._encoder.tile = None
        self._finished.add(tile.key)

    def take(self, seconds: float) -> EncodedTiles:
        """Returns a report on the encodes since the last call: the tiles that were finished or dropped, and the times
        of pieces. seconds: how long this work took."""
        spent_s = seconds if self._times else 0.0
        finished, dropped = frozenset(self._finished), frozenset(self._dropped)
        done = EncodedTiles(finished, spent_s, tuple(self._times), dropped)
        for each in (self._finished, self._dropped, self._times):
            each.clear()
        return done


class ImageRows:
    """Makes the image rows of each step, writes them where the text model's program takes them, and works on the tile
    that a plan names. inputs: the inputs of this process's steps. clock: returns seconds."""

    def __init__(self, kept: KeptRows, inputs: ImageInputs, width: int, clock: Callable[[], float]) -> None:
        """width: the number of floats of an image row: its input embedding, and the vectors that are added to hidden
        states after layers of the language model."""
        self.kept, self.width, self._inputs, self._clock = kept, width, inputs, clock
        self._ahead: deque[tuple[Plan, StepImages]] = deque()
        self._early_s = 0.0

    def prepare(self, plan: Plan) -> StepImages:
        """Returns what images add to the plan's step. Keeps it for the later call of `write` with this plan. Plans are
        written in the order in which they were prepared."""
        begin_s = self._clock()
        made = self._made(plan)
        if made is not NO_IMAGES:
            self._early_s += self._clock() - begin_s
        self._ahead.append((plan, made))
        return made

    def write(self, plan: Plan, sizes: StepSizes) -> EncodedTiles:
        """Writes the plan's image rows into the inputs of the step, and marks which rows show images. Computes pieces
        of the plan's tile, for as long as the step allows. Returns all work on images since the last call."""
        begin_s = self._clock()
        if plan.encode is not None:
            self._work(plan.encode, plan.encode_s, plan.encode_pace)
        images = self._prepared(plan)
        images = self._made(plan) if images is None else images
        self._inputs.write(images, sizes)
        early_s, self._early_s = self._early_s, 0.0
        if plan.encode is None and images is NO_IMAGES and not early_s:
            return NOTHING_ENCODED
        return self.kept.take(early_s + self._clock() - begin_s)

    def of_span(self, planned: PlannedSequence) -> tuple[Mapping[Value, F32Array], int]:
        """Returns two things about the one image that planned positions show. The first is its image rows, by the input
        of the program that takes them; the second is the position up to which these rows see."""
        ((_, rows, end),) = self._rows_in(planned.request.images, planned.start, planned.end)
        return self._inputs.by_value(rows), end

    def mark(self, count: int) -> None:
        """Marks the first `count` rows of the next step as rows of images."""
        self._inputs.mark(0, count, 0)

    def _prepared(self, plan: Plan) -> StepImages | None:
        """Returns the StepImages that were prepared for a plan, or None. Those prepared for earlier plans are
        discarded."""
        while self._ahead:
            prepared, images = self._ahead.popleft()
            if prepared is plan:
                return images
        return None

    def _made(self, plan: Plan) -> StepImages:
        if not any(sequence.request.images for sequence in plan.sequences):
            return NO_IMAGES
        shown: list[ShownRows] = []
        placed: list[PlacedRows] = []
        first_row = 0
        for sequence in plan.sequences:
            images, start, end = sequence.request.images, sequence.start, sequence.end
            for begin, rows, until in self._rows_in(images, start, end):
                shown.append(ShownRows(first_row + begin - start, until, rows))
            if images and self._inputs.turned:
                placed.append(PlacedRows(first_row, places_of(images, start, end)))
            first_row += sequence.num_tokens
        return StepImages(tuple(shown), tuple(placed))

    def _work(self, tile: ImageTile, most_s: float, pace: EncodePace) -> None:
        """Computes pieces of a tile. A tile whose encoding fails counts as done: the step that needs its rows fails
        later by itself."""
        try:
            self.kept.work(tile, most_s, pace)
        except Exception:
            self.kept.give_up(tile)

    def _rows_in(self, spans: Iterable[ImageSpan], start: int, end: int) -> Iterable[tuple[int, F32Array, int]]:
        """Yields the image rows at positions [start, end), tile by tile: the first position, the rows, and the position
        up to which these rows see. The last number is 0 where they see only earlier positions, as rows of text do."""
        for span in spans:
            begin, stop = max(span.first, start), min(span.end, end)
            if begin < stop:
                skipped = span.skipped - span.first
                rows = self.kept.of(span.tile)[begin + skipped : stop + skipped]
                yield begin, rows, span.end if span.together else 0
