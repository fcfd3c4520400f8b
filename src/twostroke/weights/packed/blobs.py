"""Packed weights as blobs (arrays of bytes with names), in memory or in the cache file: their names and lengths, and
how weights are made of them again.

A matrix has the blobs key.data, and key.scales and key.bias where it has scales and a bias; a norm has one, named by
its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import PackedWeight, U8Array
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.weights.loaded import ModelWeights

ALIGNMENT_BYTES = 64
"""The alignment that kernels may assume of packed data: one cache line, one AVX-512 register."""


class Blob(Struct, frozen=True):
    """The name and length of one blob: the bytes of one array of packed weights, for example `key`.data or
    `key`.scales."""

    key: str
    num_bytes: int


class BlobTarget(Protocol):
    """The place where blobs are filled: in memory, or on the way to a file. The packing asks for an area, fills it, and
    reports it with `put`."""

    def area(self, key: str, first_byte: int, num_bytes: int) -> U8Array:
        """Returns memory to fill with bytes [first_byte, first_byte + num_bytes) of a blob; 64-byte aligned, not
        zeroed. One thread asks for a blob's areas, in order and without gaps."""

    def put(self, key: str, first_byte: int, area: U8Array) -> None:
        """Reports that `area` is filled. Any thread may report areas, in any order, each once. Raises OSError where a
        disk is full."""


class MemoryTarget:
    """Blobs in memory, each its own allocation. Satisfies `BlobTarget`."""

    def __init__(self, blobs: tuple[Blob, ...]) -> None:
        self.blobs = {blob.key: aligned_bytes(blob.num_bytes) for blob in blobs}

    def area(self, key: str, first_byte: int, num_bytes: int) -> U8Array:
        return self.blobs[key][first_byte : first_byte + num_bytes]

    def put(self, key: str, first_byte: int, area: U8Array) -> None:
        """Does nothing: the memory that the method `area` returned belongs to the blob, so its bytes are already there.
        """


def plan_blobs(model: Model, format_for: FormatChoice) -> tuple[Blob, ...]:
    """Returns all blobs of a model in these formats, in the order of use."""
    return tuple(_blobs(model, format_for))


def weights_from_blobs(model: Model, format_for: FormatChoice, blob: Callable[[str], U8Array]) -> ModelWeights:
    """Turns blobs (uint8, of the planned lengths, aligned) into the model's weights; nothing is copied."""
    matrices: dict[str, PackedWeight] = {}
    for weight in model.program.weights:
        key, weight_format = weight.key, format_for(weight)
        scales = blob(key + ".scales").view(np.uint16) if weight_format.scale_bytes(1, 1) else None
        bias = blob(key + ".bias").view(np.float32) if weight.bias else None
        data = blob(key + ".data")
        matrices[key] = PackedWeight(weight_format, weight.rows, weight.columns, data, scales, bias, weight.experts)
    vectors = {vector.key: blob(vector.key).view(np.float32) for vector in model.program.vectors}
    return ModelWeights(matrices, vectors)


def aligned_bytes(num_bytes: int) -> U8Array:
    """Returns (num_bytes,) uint8, 64-byte aligned, not zeroed."""
    raw = np.empty(num_bytes + ALIGNMENT_BYTES, np.uint8)
    first = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[first : first + num_bytes]


def _blobs(model: Model, format_for: FormatChoice) -> Iterator[Blob]:
    for weight in model.program.weights:
        weight_format, count = format_for(weight), weight.matrices
        yield Blob(weight.key + ".data", count * weight_format.data_bytes(weight.rows, weight.columns))
        if weight_format.scale_bytes(1, 1):
            yield Blob(weight.key + ".scales", count * weight_format.scale_bytes(weight.rows, weight.columns))
        if weight.bias:
            yield Blob(weight.key + ".bias", 4 * count * weight.rows)
    for vector in model.program.vectors:
        yield Blob(vector.key, 4 * vector.length)
