"""Finds the encoder of a model that sees, counts its memory, and puts together what opens and what encodes images."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.config import IMAGE_CACHE, Resolved, Resolver
from twostroke.backends.cpu import NativePacker
from twostroke.cost.memory import MemoryNeeds
from twostroke.images.decoder import ImageDecoder, ImageLimits, has_pillow
from twostroke.images.eyes import Eyes
from twostroke.images.families import read_processor
from twostroke.images.processor import Processor
from twostroke.models.common.encoders import SightEncoder, read_encoder
from twostroke.ops.passes.with_given_rows import given_rows, with_given_rows
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place
from twostroke.ops.program.program import Program
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.image_encoder import ImageEncoder, ImageRows, KeptRows, PatchLayout, pieces_of
from twostroke.types.errors import ConfigError, ModelError
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.tensors import wanted_tensors, with_prefix

NO_ENCODER = "its files hold no encoder of images that is implemented"
NO_PILLOW = "Pillow is not installed, which opens image files: pip install 'twostroke[images]'"
NOT_ALONE = "images are encoded where one process computes the model on its processor"


class SightPlan(Struct, frozen=True, eq=False):
    """An encoder whose weights are not read yet, and how images become its tiles."""

    encoder: SightEncoder
    folder: Path
    processor: Processor

    def added_to(self, needs: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """What the model and its encoder need together, with the rows that are kept."""
        model, sight = self.encoder.model, self.encoder.sight
        own = model.weight_bytes(format_choice(settings["weights"]))
        pages = -(-sight.patches // PAGE_TOKENS) * PAGE_TOKENS * model.kv_bytes_per_token(_kv_kind(settings))
        arena = place(model.program, sight.patches, sight.rows).num_bytes
        return structs.replace(
            needs,
            weight_bytes=needs.weight_bytes + own,
            buffer_bytes=needs.buffer_bytes + arena + pages + settings["image_cache"],
        )

    def eyes(self) -> Eyes:
        """What opens images for prompts."""
        sight = self.encoder.sight
        return Eyes(self.processor, ImageDecoder(ImageLimits()), sight.rows, sight.placeholder)

    def rows(self, settings: Resolved, where: RunPlace, memory: StepMemory, program: Program) -> ImageRows:
        """What writes image rows into steps of this program, which has a place for them. Loads the encoder."""
        encoder, sight = self.encoder, self.encoder.sight
        with closing(NativePacker(settings["cpu_level"], settings["threads"], settings["cpus"])) as packer:
            with Checkpoint.open(self.folder) as checkpoint:
                weights = load_weights(checkpoint, encoder.model, format_choice(settings["weights"]), packer)
        pages = -(-sight.patches // PAGE_TOKENS)
        sizes = MemorySizes(pages, sight.patches, sight.patches, 1, max_draft_tokens=sight.rows)
        own = StepMemory(encoder.model.program, weights.matrices, weights.vectors, _kv_kind(settings), sizes)
        layout = PatchLayout(sight.patch, sight.grid, sight.merge, np.array(self.processor.values, np.float32))
        pieces = [where.ops.compile(piece, own) for piece in pieces_of(encoder.model.program)]
        made = ImageEncoder(pieces, own, encoder.pixels, layout, sight.rows)
        given = given_rows(program)
        if given is None:
            raise ValueError("the program has no place for given rows")
        return ImageRows(KeptRows(made, settings["image_cache"]), memory, given, time.perf_counter)


def _kv_kind(settings: Resolved) -> KVKind:
    return KVKind.F32 if settings["weights"] == "f32" else KVKind.BF16


def find_sight(
    resolver: Resolver, spec: Model, folder: Path, config: Mapping[str, Any], *, alone: bool
) -> tuple[Model, SightPlan | None]:
    """The model with a place for image rows, and its encoder; the model as it is where it reads no images.

    alone: whether one process computes the model on its processor. Raises ConfigError or ModelError where images are
    asked for and cannot be read.
    """
    asked, found, why = resolver.asked_value("images"), None, NO_ENCODER
    if not alone:
        why = NOT_ALONE
    elif asked != "off" and spec.task is Task.GENERATE:
        found, why = _plan(folder, config, spec, wanted=asked == "on")
    word = resolver.pick("images", "off" if found is None else "on", why)
    resolver.pick("image_cache", IMAGE_CACHE, "default")
    if word == "on" and found is None:
        raise ConfigError("This model reads no images.", why=f"{why[0].upper()}{why[1:]}.", fix="Use --images off.")
    if found is None or word == "off":
        return spec, None
    names = tuple(tensor.name for tensor in wanted_tensors(found.encoder.model))
    return with_given_rows(replace(spec, read_elsewhere=names)), found


def _plan(folder: Path, config: Mapping[str, Any], spec: Model, *, wanted: bool) -> tuple[SightPlan | None, str]:
    """The plan, or None and why. wanted: faults of its files are raised."""
    try:
        encoder = read_encoder(config, spec)
        if encoder is None or not _holds(folder, encoder.model):
            return None, NO_ENCODER
        if not has_pillow():
            return None, NO_PILLOW
        processor = read_processor(encoder.sight.family, encoder.sight.side, folder)
    except ModelError as error:
        if wanted:
            raise
        return None, f"{error.what[:1].lower()}{error.what[1:].removesuffix('.')}"
    return SightPlan(encoder, folder, processor), "the model has an encoder of images"


def _holds(folder: Path, model: Model) -> bool:
    """Whether the checkpoint has the encoder's tensors: some were saved without."""
    with Checkpoint.open(folder) as checkpoint:
        names = with_prefix(checkpoint, model).names
    return all(tensor.name in names for tensor in wanted_tensors(model))
