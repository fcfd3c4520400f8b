"""An encoder of images on its own, for comparisons with a judge's tower."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from twostroke.assembly.sight import encoder_sizes, read_table
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.encoders import SightEncoder, read_encoder
from twostroke.ops.operands import F32Array
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.folder import read_folder
from twostroke.runner.image_encoder import ImageEncoder, TowerValues, pieces_of
from twostroke.runner.patch_layout import PatchLayout
from twostroke.types.images import ImageTile
from twostroke.types.spec.formats import F32, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.tensors import with_prefix


def found_encoder(folder: Path) -> SightEncoder:
    """The encoder that a folder's config.json describes."""
    found = read_encoder(json.loads((folder / "config.json").read_text()), read_folder(folder))
    assert found is not None
    return found


@contextmanager
def open_encoder(folder: Path, level: str, values: F32Array, rows: int = 64) -> Iterator[ImageEncoder]:
    """values: what bytes mean. rows: the most image rows."""
    found = found_encoder(folder)
    sight, table = found.sight, None
    with Checkpoint.open(folder) as checkpoint:
        weights = load_weights(checkpoint, found.model, lambda _: F32, NumpyPacker())
        if sight.learned is not None:
            table = read_table(with_prefix(checkpoint, found.model), sight.learned)
    memory = StepMemory(
        found.model.program, weights.matrices, weights.vectors, KVKind.F32, encoder_sizes(sight, sight.most_rows(rows))
    )
    ops = CpuOps(level, 2)
    pieces = [ops.compile(piece, memory) for piece in pieces_of(found.model.program)]
    made = TowerValues(found.pixels, found.places, found.model.program.kept)
    whole = sight.windows.whole if sight.windows else ()
    try:
        yield ImageEncoder(pieces, memory, made, PatchLayout(sight, values, table), whole)
    finally:
        ops.close()


def tile_of(encoder: SightEncoder, image: Image.Image) -> ImageTile:
    """The whole of an image as a tile."""
    pixels = np.asarray(image)
    lines, columns = encoder.sight.patching.lines(image.width, image.height)
    return ImageTile(-1, lines, columns, image.width, image.height, pixels.tobytes())
