"""Packing at load: rows are read in bounded blocks, packed panel by panel, and never held twice.

Peak memory is the packed weights, one block of source rows and one block of packed panels.

Knows: how fused matrices are read, the Packer protocol.
Must not know: the packer's arithmetic, where packed bytes end up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from twostroke.ops.operands import F32Array, U8Array, U16Array, bf16_to_f32
from twostroke.spec.formats import PANEL_ROWS, WeightFormat
from twostroke.spec.model import FormatChoice, ModelSpec
from twostroke.types.errors import CorruptModel
from twostroke.weights.blobs import BlobTarget, MemoryTarget, plan_blobs, weights_from_blobs
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.names import MatrixSource, Part, Source, VectorSource, checked_sources
from twostroke.weights.numpy_packer import NumpyPacker
from twostroke.weights.safetensors import SourceArray, readable_dtype
from twostroke.weights.tied import read_spec
from twostroke.weights.tree import ModelWeights

BLOCK_BYTES = 16 << 20
"""Source rows read at a time: enough panels for all threads of a packer, little beside a model."""

LIMIT = 2.0**60
LIMIT_BF16_BITS = 0x5D80
"""The bits of 2^60 in bf16: exponents grow with the bits."""

Progress = Callable[[int, int, str], None]
"""progress(done_bytes, total_bytes, tensor_name), in bytes of the checkpoint."""


class Packer(Protocol):
    """Quantizes and lays out rows. A panel's bytes depend on its rows alone: blocks of panels may be packed apart."""

    def pack(self, source: SourceArray, weight_format: WeightFormat, data: U8Array, scales: U16Array | None) -> None:
        """source: (rows, columns) C-contiguous float32, or uint16 bf16 bits -> all of `data` and `scales`.

        data: (weight_format.data_bytes(rows, columns),), 64-byte aligned. scales: (scale_bytes / 2,), None for floats.
        Missing rows of the last panel and missing columns are zeros.
        """


def load_folder(
    folder: Path, weight_format: WeightFormat, packer: Packer | None = None, progress: Progress | None = None
) -> tuple[ModelSpec, ModelWeights]:
    """Spec and weights of a folder, every matrix in one format; without a packer the NumPy one. Raises ModelError."""
    spec = read_spec(folder)
    with Checkpoint.open(folder) as checkpoint:
        return spec, load_weights(checkpoint, spec, lambda role: weight_format, packer or NumpyPacker(), progress)


def load_weights(
    checkpoint: Checkpoint, spec: ModelSpec, format_for: FormatChoice, packer: Packer, progress: Progress | None = None
) -> ModelWeights:
    """Read, check and pack a whole checkpoint into memory. Raises CorruptModel or UnsupportedModel."""
    wanted = checked_sources(checkpoint, spec)
    target = MemoryTarget(plan_blobs(spec, format_for))
    pack_into(target, checkpoint, wanted, format_for, packer, progress)
    return weights_from_blobs(spec, format_for, target.blobs.__getitem__)


def pack_into(
    target: BlobTarget,
    checkpoint: Checkpoint,
    wanted: tuple[Source, ...],
    format_for: FormatChoice,
    packer: Packer,
    progress: Progress | None = None,
) -> None:
    """Fill every blob of `plan_blobs`. wanted: from `checked_sources`.

    Raises CorruptModel, UnsupportedModel, or what `target` raises (OSError).
    """
    meter = _Meter(progress, sum(_source_bytes(checkpoint, source) for source in wanted))
    for source in wanted:
        if isinstance(source, VectorSource):
            _copy_vector(target, source.key, checkpoint, (source.part,))
            meter.add(checkpoint.info(source.part.name).num_bytes, source.part.name)
            continue
        if source.bias_parts:
            _copy_vector(target, source.key + ".bias", checkpoint, source.bias_parts)
        _pack_matrix(target, source, checkpoint, format_for(source.role), packer, meter)


class _Meter:
    """Adds up what was read."""

    def __init__(self, progress: Progress | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def add(self, num_bytes: int, name: str) -> None:
        self._done_bytes += num_bytes
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes, name)


def _source_bytes(checkpoint: Checkpoint, source: Source) -> int:
    parts = (source.part,) if isinstance(source, VectorSource) else source.parts
    return sum(checkpoint.info(part.name).num_bytes for part in parts)


def _copy_vector(target: BlobTarget, key: str, checkpoint: Checkpoint, parts: tuple[Part, ...]) -> None:
    values = np.concatenate([_as_f32(checkpoint.read(part.name)) for part in parts])
    _check_usable(values, parts[0].name)
    area = target.area(key, 0, values.nbytes)
    area[:] = values.view(np.uint8)
    target.put(key, 0, area)


def _pack_matrix(
    target: BlobTarget,
    source: MatrixSource,
    checkpoint: Checkpoint,
    weight_format: WeightFormat,
    packer: Packer,
    meter: _Meter,
) -> None:
    columns = source.columns
    dtypes = {readable_dtype(part.name, checkpoint.info(part.name)) for part in source.parts}
    keep_bits = dtypes == {np.dtype("<u2")}
    element_bytes = 2 if keep_bits else 4
    block_rows = max(1, BLOCK_BYTES // (element_bytes * columns * PANEL_ROWS)) * PANEL_ROWS
    block = np.empty((min(block_rows, source.rows), columns), np.uint16 if keep_bits else np.float32)
    panel_bytes, panel_scale_bytes = weight_format.data_bytes(1, columns), weight_format.scale_bytes(1, columns)
    for first in range(0, source.rows, block_rows):
        rows = block[: min(block_rows, source.rows - first)]
        read_bytes = _read_rows(checkpoint, source.parts, first, rows)
        _check_usable(rows, source.parts[0].name)
        panels, first_panel = math.ceil(len(rows) / PANEL_ROWS), first // PANEL_ROWS
        data = target.area(source.key + ".data", first_panel * panel_bytes, panels * panel_bytes)
        if panel_scale_bytes:
            scales_key, first_byte = source.key + ".scales", first_panel * panel_scale_bytes
            scales = target.area(scales_key, first_byte, panels * panel_scale_bytes)
            packer.pack(rows, weight_format, data, scales.view(np.uint16))
            target.put(scales_key, first_byte, scales)
        else:
            packer.pack(rows, weight_format, data, None)
        target.put(source.key + ".data", first_panel * panel_bytes, data)
        meter.add(read_bytes, source.parts[0].name)


def _read_rows(checkpoint: Checkpoint, parts: tuple[Part, ...], first: int, out: SourceArray) -> int:
    """Rows [first, first + len(out)) of the parts stacked -> `out`; returns the bytes read."""
    done, part_first, read_bytes = 0, 0, 0
    for part in parts:
        part_end = part_first + part.shape[0]
        begin, end = max(first + done, part_first), min(first + len(out), part_end)
        if begin < end:
            slot = out[done : done + end - begin]
            info = checkpoint.info(part.name)
            if info.dtype == "BF16" and out.dtype == np.float32:
                slot[...] = _as_f32(checkpoint.read_rows(part.name, begin - part_first, end - begin))
            else:
                checkpoint.read_rows(part.name, begin - part_first, end - begin, out=slot)
            read_bytes += (end - begin) * info.num_bytes // max(1, info.rows)
            done += end - begin
        part_first = part_end
    return read_bytes


def _as_f32(values: SourceArray) -> F32Array:
    return bf16_to_f32(values.view(np.uint16)) if values.dtype == np.uint16 else values.astype(np.float32, copy=False)


def _check_usable(values: SourceArray, name: str) -> None:
    """Codecs square weights in float32, so the bound is theirs: below 2^60, which leaves NaN and infinity out too."""
    if values.dtype == np.uint16:
        usable = int((values.view(np.uint16) & np.uint16(0x7FFF)).max(initial=0)) < LIMIT_BF16_BITS
    else:
        usable = bool(values.max(initial=0) < LIMIT and values.min(initial=0) > -LIMIT)
    if not usable:
        raise CorruptModel(
            f"Tensor {name} (or one fused with it) holds values that are NaN, infinite or beyond 2^60.",
            why="One of them in the weights makes every answer NaN.",
            fix="Download the model again; if that does not help, the checkpoint itself is broken.",
        )
