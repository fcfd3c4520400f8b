"""The inputs that images add to a step. One process makes them, and each process that computes a part of the step
writes them into its own memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes


class ShownRows(Struct, frozen=True, eq=False):
    """Consecutive rows of a step that show a part of an image. first: the index of the first one. end: the position up
    to which these rows see; 0 where they see only earlier positions, as rows of text do. numbers: (rows, n * width). A
    row holds n vectors: its input embedding, and those that are added to hidden states after layers."""

    first: int
    end: int
    numbers: F32Array


class PlacedRows(Struct, frozen=True, eq=False):
    """The rotary positions in time, height and width (3, rows) of the rows of a sequence that shows images. first: its
    first row."""

    first: int
    places: I32Array


class StepImages(Struct, frozen=True, eq=False):
    """What the inputs of a step need of images. shown: the rows that show images. placed: the rotary positions of each
    sequence that shows images."""

    shown: tuple[ShownRows, ...] = ()
    placed: tuple[PlacedRows, ...] = ()


NO_IMAGES = StepImages()


class ImageInputs:
    """Writes image rows into the memory of a step, marks them, and writes the rotary positions of all rows.

    An image row has one or more vectors: the input embedding, and those that are added to hidden states after layers.
    taken: for each of these vectors, the value of the program that it is written to; None where another process needs
    it. filler: the token id of rows that show images; None for the token id in the prompt. turned: whether any process
    has rotary positions in time, height and width.
    """

    def __init__(
        self, memory: StepMemory, taken: Sequence[Value | None], filler: int | None = None, *, turned: bool = False
    ) -> None:
        self._memory, self._taken, self._filler, self.turned = memory, tuple(taken), filler, turned
        self._marked = False

    @property
    def pieces(self) -> int:
        """The number of vectors that an image row is made of: the input embedding, and one for each layer after which a
        vector is added."""
        return len(self._taken)

    def by_value(self, numbers: F32Array) -> dict[Value, F32Array]:
        """Divides image rows (rows, width * pieces) into the input embedding and the vectors that are added after
        layers. Returns those that this process needs, by the input value of its program."""
        parts = zip(self._taken, np.split(numbers, self.pieces, axis=1), strict=True)
        return {value: part for value, part in parts if value is not None}

    def fill(self, piece: int, first: int, numbers: F32Array) -> None:
        """Writes one of the vectors of image rows, (rows, width) or flat, from row `first` of the next step on. piece:
        the index of the vector. Raises ValueError for rows that no step has."""
        value = self._taken[piece]
        if value is None:
            return
        rows = numbers.reshape(-1, value.width)
        if not 0 <= first <= self._memory.sizes.max_step_tokens - len(rows):
            raise ValueError(f"{len(rows)} image rows from row {first} on are no rows of a step")
        self._memory.fill_rows(value, StepSizes(first + len(rows), 0, 0), rows, first)

    def mark(self, first: int, count: int, end: int) -> None:
        """Marks `count` rows of the next step, from row `first` on, as image rows. end: the position up to which they
        see; 0 where they see as rows of text do. The token ids of all rows must be written."""
        at = slice(first, first + count)
        self._memory.row_marks[at], self._memory.row_ends[at] = 1, end
        if self._filler is not None:
            self._memory.token_ids[at] = self._filler
        self._marked = True

    def begin(self, placed: Sequence[PlacedRows], sizes: StepSizes) -> None:
        """Removes the marks of the last step's image rows, and writes the rotary positions of all rows. The token
        positions of all rows must be written."""
        memory = self._memory
        if self._marked:
            memory.row_marks[:], memory.row_ends[:] = 0, 0
            self._marked = False
        if memory.row_turns:
            made = np.repeat(memory.positions[None, : sizes.tokens], 3, axis=0)
            for each in placed:
                made[:, each.first : each.first + each.places.shape[1]] = each.places
            for table in memory.row_turns:
                table.write(made)

    def write(self, images: StepImages, sizes: StepSizes) -> None:
        """Writes the rotary positions of all rows and the image rows of a step, and marks the image rows. The process
        must have the image rows."""
        self.begin(images.placed, sizes)
        for each in images.shown:
            for piece, own in enumerate(np.split(each.numbers, self.pieces, axis=1)):
                self.fill(piece, each.first, own)
            self.mark(each.first, len(each.numbers), each.end)
