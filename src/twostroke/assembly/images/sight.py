"""Finds a model's encoder of images, counts its memory, and builds the objects that open and encode images."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, structs

from twostroke.assembly.cost_here import encoder_cost_here
from twostroke.assembly.images.encoder_format import EncoderFormat
from twostroke.assembly.images.sight_files import SightFiles, sight_files
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.config import IMAGE_TOKENS, resolve_images
from twostroke.assembly.settings.engine_settings import ImageSettings
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Resolved, Resolver
from twostroke.backends.cpu import NativePacker
from twostroke.cost.encode_cost import EncodeCost
from twostroke.cost.memory import EncoderBytes, MemoryNeeds
from twostroke.cost.shape import Segment, StepCost
from twostroke.images.decoding.decoder import ImageDecoder, ImageLimits, has_pillow
from twostroke.images.eyes import Eyes
from twostroke.images.families.registry import read_processor
from twostroke.images.processor import Processor
from twostroke.images.remote.allowed import NOTHING_ELSEWHERE, AllowedHosts, FetchesImages
from twostroke.models.common.encoders import SightEncoder, read_encoder
from twostroke.models.common.sight import LearnedPlaces, Sight
from twostroke.ops.operands import F32Array, bf16_to_f32
from twostroke.ops.passes.row_cuts import parts_of
from twostroke.ops.passes.span_parts import body_of, head_of, kept_bytes, span_cost, span_parts
from twostroke.ops.passes.with_given_rows import GivenRows, taken_rows, with_given_rows
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place
from twostroke.ops.program.program import Program
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.images.image_encoder import ImageEncoder, ImageRows, KeptRows, TowerValues
from twostroke.runner.images.patch_layout import PatchLayout
from twostroke.runner.images.span_runner import ImageSteps, KeptHead, KeptValues, SpanProgram, SpanRunner
from twostroke.runner.images.step_images import ImageInputs
from twostroke.types.errors import ConfigError, CorruptModel, ModelError
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.images import ImageTile, SpanLayers
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.tensors import program_names, wanted_tensors, with_prefix

if TYPE_CHECKING:
    from twostroke.images.remote import fetch as remote
else:
    remote = LazyModule("twostroke.images.remote.fetch")

NO_ENCODER = "its files hold no encoder of images that is implemented"
NO_PILLOW = "Pillow is not installed, which opens image files: pip install 'twostroke[images]'"
PROBE_LINES = 2
"""The height and width, in image rows, of the small image that is encoded as a probe. Two encoders that make the same
rows of it compute with the same arithmetic."""


class SightPlan(Struct, frozen=True, eq=False):
    """An image encoder whose weights are not read yet, and the processor that turns images into tiles for it.
    most_rows: the most image rows of a tile.

    stored: the names of the encoder's tensors in the language model's checkpoint. kept_bytes: the bytes that a language
    model keeps between two pieces of an image; 0 where it does not compute images in pieces.
    """

    encoder: SightEncoder
    files: SightFiles
    processor: Processor
    most_rows: int
    stored: tuple[str, ...]
    kept_bytes: int = 0

    @property
    def together(self) -> bool:
        """Whether the rows of an image see each other in the language model; in other models, each row sees only the
        rows before it."""
        return self.encoder.sight.spans is not SpanLayers.NONE

    def form(self, settings: Resolved) -> EncoderFormat:
        """The formats in which the encoder computes."""
        return EncoderFormat.next_to(settings.model.weights, settings.images.encoder_weights)

    def needs(self, settings: Resolved) -> EncoderBytes:
        """Returns the memory that the encoder needs, without the language model and the stored image rows."""
        return encoder_bytes(self.encoder, self.most_rows, self.form(settings))

    @property
    def how(self) -> GivenRows:
        """How the rows of an image enter the language model's program."""
        sight = self.encoder.sight
        return GivenRows(sight.scaled, sight.added, sight.text_turns.axes if sight.text_turns else None, sight.spans)

    def whole_bytes(self, settings: Resolved) -> int:
        """Returns all bytes of the encoder, including the image rows that are kept."""
        needs = self.needs(settings)
        return needs.weights + needs.buffers + settings.images.image_cache + self.kept_bytes

    def added_to(self, needs: MemoryNeeds, own: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """Returns the most memory that any process needs, encoder and stored image rows included. needs: the memory of
        the process with the largest part of the model. own: the memory of the process with the encoder, before the
        encoder is added.

        Where an image is computed in pieces, window pages must hold all its rows.
        """
        encoder, caches = self.needs(settings), needs.caches
        buffers = own.buffer_bytes + encoder.buffers + settings.images.image_cache + self.kept_bytes
        most = max(caches.chunk_tokens, self.most_rows if self.kept_bytes else 0)
        return structs.replace(
            needs,
            weight_bytes=max(needs.weight_bytes, own.weight_bytes + encoder.weights),
            buffer_bytes=max(needs.buffer_bytes, buffers),
            caches=structs.replace(caches, chunk_tokens=most),
        )

    def span_s(self, spec: Model, steps: StepCost, step_tokens: int) -> float:
        """Returns the predicted seconds of a step that cannot be made shorter: it decodes one sequence and works on an
        image of `most_rows` rows. It is for models in which rows of an image see each other. steps: predicts steps of
        the model."""
        rows, stream = self.most_rows, Segment.decode(0)
        if self.kept_bytes:
            pieces = span_cost(span_parts(spec.program), steps, step_tokens)
            return steps.predict([stream]).seconds + pieces.least_s(rows)
        whole = Segment.prefill(0, rows, False)._replace(later=rows * (rows - 1) // 2)
        return steps.predict([stream, whole]).seconds

    def eyes(self, settings: Resolved) -> Eyes:
        """Returns the object that opens images for prompts."""
        sight, limits = self.encoder.sight, ImageLimits()
        fetcher = fetcher_of(settings.images.image_urls, limits.file_bytes)
        decoder, together = ImageDecoder(limits), self.together
        return Eyes(self.processor, decoder, sight.patching, sight.placeholder, together, fetcher, sight.marks)

    def cost(self, settings: Resolved, machine: Machine, threads: int) -> EncodeCost:
        """Returns the cost model of encoding on this machine with so many threads."""
        level = settings.cpu.cpu_level
        return encoder_cost_here(self.encoder, self.form(settings), machine.cache_folder, level, threads)

    def steps(
        self,
        settings: Resolved,
        machine: Machine,
        where: RunPlace,
        memory: StepMemory,
        programs: tuple[Program, Program],
    ) -> ImageSteps:
        """Loads the encoder, and returns the objects that encode images and compute image rows in the engine's steps.
        programs: the program of the whole model, and the program of the part that this process computes."""
        kept, sight = self.kept(settings, machine, where), self.encoder.sight
        inputs = ImageInputs(memory, taken_rows(*programs), sight.filler, turned=self.how.axes is not None)
        width = sum(value.width for value in (self.encoder.model.program.logits, *self.encoder.model.program.kept))
        rows = ImageRows(kept, inputs, width, time.perf_counter)
        return ImageSteps(rows, self._spans(where, memory, programs[0], rows))

    def _spans(self, where: RunPlace, memory: StepMemory, program: Program, images: ImageRows) -> SpanRunner | None:
        if not self.kept_bytes:
            return None
        parts = span_parts(program)
        bodies = [where.compiled(body_of(program, part), memory) for part in parts]
        kept, head = KeptValues(memory), where.compiled(head_of(program), memory)
        kept_head = KeptHead(head, kept, parts[-1].kept)
        sampled = where.runner(kept_head, memory, program.logits.width)
        own = SpanProgram(parts, bodies, where.ops)
        return SpanRunner(own, memory, images, kept, sampled, kept_head, time.perf_counter)

    def kept(self, settings: Resolved, machine: Machine, where: RunPlace) -> KeptRows:
        """Loads the encoder, and returns the store that encodes tiles with it and keeps their image rows."""
        encoder, sight, form = self.encoder, self.encoder.sight, self.form(settings)
        model = form.model(encoder.model)
        with closing(NativePacker(settings.cpu.cpu_level, settings.cpu.threads, settings.cpu.cpus)) as packer:
            with self.files.open() as checkpoint:
                weights = load_weights(checkpoint, model, form.choice, packer)
                prefixed = with_prefix(checkpoint, model)
                table = None if sight.learned is None else read_table(prefixed, sight.learned)
                newline = None if not sight.newline else _numbers(prefixed, sight.newline)
        own = StepMemory(model.program, weights.matrices, weights.vectors, form.kv, self._sizes())
        layout = PatchLayout(sight, np.array(self.processor.values, np.float32), table, newline)
        parts = [where.ops.compile(part, own) for part in parts_of(model.program)]
        values = TowerValues.of(encoder, model.program)
        made = ImageEncoder(parts, own, values, layout, self.cost(settings, machine, where.ops.num_threads))
        return KeptRows(made, settings.images.image_cache, time.perf_counter)

    def probe(self) -> ImageTile:
        """Returns a small tile with fixed pixels. Encoders that make the same rows of it have the same arithmetic."""
        lines = min(PROBE_LINES, math.isqrt(self.most_rows))
        side = lines * self.encoder.sight.patching.unit
        pixels = bytes((7 * place + place // 11) % 256 for place in range(3 * side * side))
        return ImageTile(-1, lines, lines, side, side, pixels)

    def _sizes(self) -> MemorySizes:
        return encoder_sizes(self.encoder.sight, self.most_rows)


def encoder_bytes(encoder: SightEncoder, most_rows: int, form: EncoderFormat) -> EncoderBytes:
    """Returns the memory that an encoder needs for tiles of at most `most_rows` image rows."""
    sizes = encoder_sizes(encoder.sight, most_rows)
    model = form.model(encoder.model)
    pages = sizes.pages_of(0) * PAGE_TOKENS * model.kv_bytes_per_token(form.kv)
    arena = place(model.program, sizes.max_step_tokens, sizes.max_logit_rows).num_bytes
    turns = 2 * model.rope_bytes(sizes.max_step_tokens)
    return EncoderBytes(model.weight_bytes(form.choice), arena + turns + pages)


def fetcher_of(hosts: tuple[str, ...], most_bytes: int) -> FetchesImages:
    """Returns the object that fetches images from these hosts. Its modules are imported only where there are hosts."""
    return remote.ImageFetcher(AllowedHosts.of(hosts), most_bytes) if hosts else NOTHING_ELSEWHERE


def encoder_sizes(sight: Sight, rows: int) -> MemorySizes:
    """Returns the sizes of an encoder's memory for tiles of at most `rows` image rows. Each attention window begins a
    new page, so one page for each window may be partly empty."""
    patches, windows = sight.most_patches(rows), sight.most_windows(rows)
    return MemorySizes(-(-patches // PAGE_TOKENS) + windows, patches, patches, windows, max_draft_tokens=rows)


def read_table(checkpoint: Checkpoint, learned: LearnedPlaces) -> F32Array:
    """Returns the learned position embeddings of an encoder (positions, width). Where the encoder has a class token,
    its position comes first, and the token's own vector is added to it.

    Raises CorruptModel where the tensor has another number of positions.
    """
    found = _numbers(checkpoint, learned.tensor)
    if found.ndim not in (2, 3) or found.size != learned.rows * found.shape[-1]:
        raise CorruptModel(
            f"Tensor {learned.tensor} has the shape {list(found.shape)}, expected {learned.rows} rows.",
            why="The number of places follows from config.json.",
            fix="config.json and the weights belong to different models or revisions: download both again.",
        )
    made = np.roll(found.reshape(learned.rows, -1), int(learned.first_is_last), axis=0)
    if learned.first:
        made[0] += _numbers(checkpoint, learned.first).reshape(-1)
    if learned.bias:
        made[1:] += _numbers(checkpoint, learned.bias)
    return made


def _numbers(checkpoint: Checkpoint, name: str) -> F32Array:
    stored = checkpoint.read(name)
    return bf16_to_f32(stored.view(np.uint16)) if stored.dtype == np.uint16 else stored.astype(np.float32)


def processor_of(sight: Sight, settings: Mapping[str, Any], asked_rows: int) -> tuple[Processor, int]:
    """Returns the processor that cuts images into tiles, and the most image rows of a tile. asked_rows: the most rows
    that are asked for.

    Raises CorruptModel, UnsupportedModel.
    """
    tiling = sight.tiling(asked_rows)
    processor, rows = read_processor(sight.family, tiling, settings), tiling.most_rows
    return processor, min(rows, processor.most_rows or rows)


def find_sight(
    resolver: Resolver, spec: Model, folder: Path, config: Mapping[str, Any], *, pieces: bool
) -> tuple[Model, SightPlan | None]:
    """Returns the model with an input for image rows, and its encoder. For a model that reads no images, returns the
    model unchanged, and None. pieces: whether rows of an image that see each other may be computed in pieces. Raises
    ConfigError or ModelError where images are asked for and cannot be read."""
    asked, found, why = resolver.asked_value(ImageSettings.images), None, NO_ENCODER
    if asked != "off" and spec.task is Task.GENERATE:
        most = resolver.asked_value(ImageSettings.image_tokens) or IMAGE_TOKENS
        pieces = pieces and len(span_parts(spec.program)) > 0
        step_tokens = sys.maxsize if pieces else resolver.resolved().steps.max_step_tokens
        wanted = asked == "on" or resolver.asked_value(ImageSettings.mmproj) is not None
        found, why = _plan(lambda: sight_files(resolver, spec, folder, config), spec, most, step_tokens, wanted=wanted)
    where = "the encoder lies in the model's folder" if found is None else found.files.name
    resolver.pick(ImageSettings.mmproj, None, where)
    word = resolver.pick(ImageSettings.images, "off" if found is None else "on", why)
    resolve_images(resolver)
    if word == "on" and found is None:
        raise ConfigError("This model reads no images.", why=f"{why[0].upper()}{why[1:]}.", fix="Use --images off.")
    if found is None or word == "off":
        return spec, None
    made = with_given_rows(replace(spec, read_elsewhere=() if found.files.apart else found.stored), found.how)
    if pieces and found.together:
        found = structs.replace(found, kept_bytes=kept_bytes(made.program, found.most_rows))
    return made, found


def sight_of_replicas(resolver: Resolver, spec: Model, folder: Path, config: Mapping[str, Any]) -> SightPlan | None:
    """Returns the plan of the encoder that a front's replicas have. The front uses only the plan's rules for opening
    and cutting images. Raises ConfigError, ModelError."""
    most = resolver.asked_value(ImageSettings.image_tokens) or IMAGE_TOKENS
    found, _ = _plan(lambda: sight_files(resolver, spec, folder, config), spec, most, sys.maxsize, wanted=True)
    resolve_images(resolver)
    return found


def _plan(
    find: Callable[[], SightFiles | None], spec: Model, asked_rows: int, step_tokens: int, *, wanted: bool
) -> tuple[SightPlan | None, str]:
    """Returns the plan, or None, and the reason. find: finds the encoder's files. asked_rows: the most image rows of a
    tile. step_tokens: the most rows of a step.

    wanted: True raises the error that prevents reading images, instead of returning it as the reason.
    """
    try:
        files = find()
        encoder = None if files is None else read_encoder(files.config, spec)
        stored = () if files is None or encoder is None else _stored_names(files, encoder)
        if files is None or encoder is None or not stored:
            return None, NO_ENCODER
        if not has_pillow():
            return None, NO_PILLOW
        processor, rows = processor_of(encoder.sight, files.settings, asked_rows)
        if encoder.sight.spans is not SpanLayers.NONE and step_tokens < rows:
            raise ConfigError(
                f"--max-step-tokens {step_tokens} is less than the {rows} rows of an image.",
                why="In this model the rows of an image see each other, so they are computed in one step.",
                fix=f"Give at least --max-step-tokens {rows}, or --images off.",
            )
    except (ConfigError, ModelError) as error:
        if wanted:
            raise
        return None, f"{error.what[:1].lower()}{error.what[1:].removesuffix('.')}"
    return SightPlan(encoder, files, processor, rows, stored), "the model has an encoder of images"


def _stored_names(files: SightFiles, encoder: SightEncoder) -> tuple[str, ...]:
    """Returns the names of the encoder's tensors in the checkpoint; empty where the checkpoint was saved without some
    of them."""
    wanted = {tensor.name for tensor in wanted_tensors(encoder.model)}
    wanted |= encoder.sight.tensors
    with files.open() as checkpoint:
        if not wanted <= with_prefix(checkpoint, encoder.model).names:
            return ()
        renamed = program_names(checkpoint.names, encoder.model)
        return tuple(name for name in checkpoint.names if renamed.get(name, name) in wanted)
