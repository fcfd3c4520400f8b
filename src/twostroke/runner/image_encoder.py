"""The encoder of images: tiles in, image rows out; and the rows of a step that come from images.

Rows of tiles are kept up to a number of bytes, the latest used ones. A tile that was dropped is encoded again, with the
same bits: an encode is one step of one sequence, so its rows depend on the pixels alone.

Knows: a bound encoder, a bound memory of the text model, plans.
Must not know: files, requests beyond their tiles, which tower it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.program.values import Value
from twostroke.runner.forward import Forward
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.types.images import ImageSpan, ImageTile
from twostroke.types.plan import Plan


class PatchLayout(Struct, frozen=True):
    """How a square tile becomes rows of pixels. side: of a patch. grid: patches of a side. merge: see `Sight`.

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
    """One tile at a time. pixels: the value that takes patches. rows: image rows of a tile."""

    def __init__(self, forward: Forward, memory: StepMemory, pixels: Value, layout: PatchLayout, rows: int) -> None:
        self._forward, self._memory, self._pixels, self._layout = forward, memory, pixels, layout
        self._sizes = StepSizes(layout.grid**2, 1, rows)
        self.num_encoded = 0
        count = self._sizes.tokens
        memory.token_ids[:count] = layout.order()
        memory.positions[:count] = slots = np.arange(count, dtype=np.int32)
        memory.slots[:count] = slots
        memory.batch.row_starts[:2] = [0, count]
        memory.batch.context_tokens[0] = count
        pages = -(-count // PAGE_TOKENS)
        memory.batch.page_table[0, :pages] = np.arange(pages)

    def encode(self, tile: ImageTile) -> F32Array:
        """(rows, width of the text model) float32."""
        self._memory.fill(self._pixels, self._sizes, self._layout.patches(tile))
        self._memory.choose_logit_rows(np.arange(self._sizes.logit_rows, dtype=np.int32))
        self.num_encoded += 1
        return self._forward(self._sizes).copy()


class KeptRows:
    """Rows of tiles by their keys, at most max_bytes of them beside the latest tile."""

    def __init__(self, encoder: ImageEncoder, max_bytes: int) -> None:
        self._encoder, self._max_bytes = encoder, max_bytes
        self._rows: OrderedDict[int, F32Array] = OrderedDict()
        self.num_bytes = self.num_found = 0

    def __contains__(self, tile: ImageTile) -> bool:
        return tile.key in self._rows

    def of(self, tile: ImageTile) -> F32Array:
        """The tile's rows, kept or computed now."""
        found = self._rows.get(tile.key)
        if found is not None:
            self._rows.move_to_end(tile.key)
            self.num_found += 1
            return found
        made = self._rows[tile.key] = self._encoder.encode(tile)
        self.num_bytes += made.nbytes
        while self.num_bytes > self._max_bytes and len(self._rows) > 1:
            self.num_bytes -= self._rows.popitem(last=False)[1].nbytes
        return made


class ImageRows:
    """Writes the image rows of each step where the text model's program takes them. given: the value that does."""

    def __init__(self, kept: KeptRows, memory: StepMemory, given: Value) -> None:
        self._kept, self._memory, self._given = kept, memory, given
        self._marked = False

    def write(self, plan: Plan, sizes: StepSizes) -> None:
        """Marks and rows of the plan's positions that show images."""
        marks = self._memory.row_marks
        if self._marked:
            marks[:] = 0
            self._marked = False
        if not any(sequence.request.images for sequence in plan.sequences):
            return
        target = self._memory.value(self._given, sizes)
        first_row = 0
        for sequence in plan.sequences:
            for begin, rows in self._rows_in(sequence.request.images, sequence.start, sequence.end):
                at = first_row + begin - sequence.start
                target[at : at + len(rows)] = rows
                marks[at : at + len(rows)] = 1
                self._marked = True
            first_row += sequence.num_tokens

    def _rows_in(self, spans: Iterable[ImageSpan], start: int, end: int) -> Iterable[tuple[int, F32Array]]:
        """(first position, rows) of each tile's part in positions [start, end)."""
        for span in spans:
            begin, stop = max(span.first, start), min(span.end, end)
            if begin < stop:
                yield begin, self._kept.of(span.tile)[begin - span.first : stop - span.first]
