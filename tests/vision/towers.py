"""An encoder of images without a language model, for comparisons with a judge's tower."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from tests.scheduler.fakes import LineCost
from twostroke.assembly.images.encoder_format import EncoderFormat
from twostroke.assembly.images.sight import encoder_sizes, read_table
from twostroke.backends.cpu import CpuOps
from twostroke.cost.encode_cost import EncodeCost
from twostroke.models.common.encoders import SightEncoder, encode_cost, read_encoder
from twostroke.ops.operands import F32Array
from twostroke.ops.passes.row_cuts import parts_of
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.folder import read_folder
from twostroke.runner.images.image_encoder import ImageEncoder, TowerValues
from twostroke.runner.images.patch_layout import PatchLayout
from twostroke.types.encode import PieceKind
from twostroke.types.images import ImageTile
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.tensors import with_prefix

FLOATS = EncoderFormat.next_to("f32")


class RowsOfPieces(EncodeCost, frozen=True):
    """A piece costs a second for each of its rows, so the seconds are the most rows of a piece."""

    def piece_s(self, kind: PieceKind, rows: int, patches: int) -> float:
        return float(rows)


def found_encoder(folder: Path) -> SightEncoder:
    """The encoder that a folder's config.json describes."""
    found = read_encoder(json.loads((folder / "config.json").read_text()), read_folder(folder))
    assert found is not None
    return found


@contextmanager
def open_encoder(
    folder: Path, level: str, values: F32Array, rows: int = 64, form: EncoderFormat = FLOATS
) -> Iterator[ImageEncoder]:
    """Opens the encoder. values: the meaning of bytes. rows: the most image rows. The seconds of an encode are rows of
    a piece."""
    found = found_encoder(folder)
    sight, table, newline = found.sight, None, None
    model = form.model(found.model)
    with Checkpoint.open(folder) as checkpoint:
        weights = load_weights(checkpoint, model, form.choice, NumpyPacker())
        if sight.learned is not None:
            table = read_table(with_prefix(checkpoint, model), sight.learned)
        if sight.newline:
            newline = with_prefix(checkpoint, model).read(sight.newline)
    sizes = encoder_sizes(sight, sight.most_rows(rows))
    memory = StepMemory(model.program, weights.matrices, weights.vectors, form.kv, sizes)
    ops = CpuOps(level, 2)
    parts = [ops.compile(part, memory) for part in parts_of(model.program)]
    made = TowerValues.of(found, model.program)
    usual = encode_cost(found, model, lambda _part: LineCost())
    cost = RowsOfPieces(usual.costs, usual.merge, usual.layers, usual.window, usual.whole, usual.fold)
    try:
        yield ImageEncoder(parts, memory, made, PatchLayout(sight, values, table, newline), cost)
    finally:
        ops.close()


def tile_of(encoder: SightEncoder, image: Image.Image) -> ImageTile:
    """The whole of an image as a tile."""
    pixels = np.asarray(image)
    lines, columns = encoder.sight.patching.lines(image.width, image.height)
    return ImageTile(-1, lines, columns, image.width, image.height, pixels.tobytes())
