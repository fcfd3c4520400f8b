"""Turns the image rows of a step into frames for members, and the frames back into inputs of a member's step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from twostroke.distributed.ranks.frames import RankGiven, RankPlaced, RankShown, RankStep
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.images.step_images import ImageInputs, PlacedRows, StepImages

FRAME_BYTES = 64 << 10
"""The most bytes of image rows in a frame, except that a frame has at least one row. All copies of a frame then fit
into CPU caches and need no new memory from the system. Frames of 4 MiB took 5 times as much processor time."""


def given_frames(images: StepImages, pieces: int) -> Iterator[RankGiven]:
    """Yields frames with the image rows of a step. pieces: the number of vectors that make up a row: its embedding, and
    the vectors that later layers add. Each frame has the same vector of some consecutive rows."""
    for each in images.shown:
        for piece, numbers in enumerate(np.split(each.numbers, pieces, axis=1)):
            rows = max(1, FRAME_BYTES // (4 * numbers.shape[1]))
            for begin in range(0, len(numbers), rows):
                yield RankGiven(piece, each.first + begin, numbers[begin : begin + rows].tobytes())


def shown_of(images: StepImages) -> tuple[RankShown, ...]:
    """Returns which rows of a step show images, for its RankStep."""
    return tuple(RankShown(each.first, len(each.numbers), each.end) for each in images.shown)


def placed_of(images: StepImages) -> tuple[RankPlaced, ...]:
    """Returns, for the step's RankStep frame, the rotary positions of all sequences whose prompts contain images."""
    return tuple(RankPlaced(each.first, each.places.tobytes()) for each in images.placed)


def fill(frame: RankGiven, inputs: ImageInputs) -> None:
    """Writes a frame's image rows into the inputs of a member's next step. Raises ValueError for a frame that does not
    fit."""
    if not 0 <= frame.piece < inputs.pieces:
        raise ValueError(f"piece {frame.piece} of {inputs.pieces} of an image row")
    inputs.fill(frame.piece, frame.first, np.frombuffer(frame.numbers, np.float32))


def mark(step: RankStep, inputs: ImageInputs, sizes: StepSizes) -> None:
    """Writes which rows of a member's step show images, and the rotary positions of all rows. The other inputs of the
    step must have been written."""
    placed = [PlacedRows(each.first, np.frombuffer(each.places, np.int32).reshape(3, -1)) for each in step.placed]
    inputs.begin(placed, sizes)
    for each in step.shown:
        inputs.mark(each.first, each.count, each.end)
