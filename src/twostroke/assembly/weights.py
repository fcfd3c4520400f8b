"""Loads packed weights of a model, as the settings ask for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from msgspec import structs

from twostroke.assembly.folders import CALIBRATED
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Resolved
from twostroke.backends.cpu import NativePacker
from twostroke.backends.cpu.huge_pages import HUGE_PAGE_BYTES, settle
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Vector
from twostroke.ops.quant.formats import STORED, format_choice, kv_warning
from twostroke.system import here
from twostroke.types.reading.user_path import user_path
from twostroke.types.speculate import INSIDE
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.early.record import remember
from twostroke.weights.hub.hub import ModelFolder
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.background_check import BackgroundCheck
from twostroke.weights.packed.cache import CachedWeights, cached_weights
from twostroke.weights.packed.cache_choice import NO_CACHE, PACKED
from twostroke.weights.packed.room import KeptFolder
from twostroke.weights.packed.settle import Settler
from twostroke.weights.quantized.kv_scales import kv_scale_sentence
from twostroke.weights.stored import tell_stored
from twostroke.weights.unread import tell_unread

Progress = Callable[[int, int, str], None]
Report = Callable[[str], None]


MEMORY_SHARE = 0.875
"""The share of the available memory that may hold weights while they are packed. Weights for a device may be larger
than the host's memory. Such weights go through their file, as pages that the system may write to the disk and forget.
"""

NOT_PACKED = ":made here"
"""The ending of the keys of vectors that the engine makes itself for some settings, such as factors of keys. They are
not stored in the packed file, which is the same with and without them."""


def load(
    folder: Path, spec: Model, resolved: Resolved, machine: Machine, progress: Progress | None, report: Report
) -> CachedWeights:
    """Returns packed weights. They are mapped from the cache folder, or packed into it. They are packed into memory
    where the cache is off or its folder cannot hold them.

    machine: the part of the host that this engine may use.
    """
    made = {each.key: np.array(each.numbers, np.float32) for each in spec.program.vectors if _is_made(each)}
    if made:
        kept = tuple(each for each in spec.program.vectors if not _is_made(each))
        shared = replace(spec, program=replace(spec.program, vectors=kept))
        whole = load(folder, shared, resolved, machine, progress, report)
        return structs.replace(whole, weights=replace(whole.weights, vectors={**whole.weights.vectors, **made}))
    format_for = format_choice(resolved.model.weights)
    packer = NativePacker(resolved.cpu.cpu_level, resolved.cpu.threads, resolved.cpu.cpus)
    try:
        with here.beginning_on(machine.close), Checkpoint.open(folder) as checkpoint:
            if resolved.model.weights == STORED:
                _tell_calibrated(resolved, report)
                tell_stored(spec, checkpoint, report)
            warning = kv_warning(resolved.cache.kv_format)
            if warning is not None:
                report(warning)
            tell_unread(spec, checkpoint, resolved.guesses.speculate in INSIDE, report)
            scales = kv_scale_sentence(checkpoint.stored_names, resolved.cache.kv_format)
            if scales is not None:
                report(scales)
            sources = tuple(shard.path for shard in checkpoint.shards.values())
            if resolved.disk.cache == NO_CACHE:
                return CachedWeights(load_weights(checkpoint, spec, format_for, packer, progress), None, sources)
            memory_bytes = int(MEMORY_SHARE * machine.available_bytes)
            packed_files = KeptFolder(
                user_path(resolved.disk.cache) / PACKED, resolved.disk.cache_limit, memory_bytes
            )
            found = cached_weights(packed_files, checkpoint, spec, format_for, packer, progress, report)
            return structs.replace(found, sources=sources)
    finally:
        packer.close()


def load_named(
    folder: ModelFolder, spec: Model, resolved: Resolved, machine: Machine, progress: Progress | None, report: Report
) -> CachedWeights:
    """Loads weights as `load` does, for the model that a user named, and records their file. The next start of the
    server can then read this file from the disk at once, next to its imports."""
    loaded = load(folder.path, spec, resolved, machine, progress, report)
    if resolved.disk.cache != NO_CACHE:
        kept = user_path(resolved.disk.cache)
        packed = None if loaded.file is None else loaded.file.path
        remember(kept, folder.source, resolved.model.weights, packed, loaded.sources)
    return loaded


def _tell_calibrated(resolved: Resolved, report: Report) -> None:
    reason = next(setting.reason for setting in resolved.settings if setting.name == "weights")
    if reason.startswith(CALIBRATED):
        report(f"Weights: {reason}.")


def _is_made(vector: Vector) -> bool:
    return vector.key.endswith(NOT_PACKED)


def checked(loaded: CachedWeights, report: Report, closing: ExitStack) -> BackgroundCheck:
    """Returns a check of the weights' file against its checksums. Its `start` begins the check in a thread, and
    `closing` ends it."""
    check = BackgroundCheck(loaded.file, report)
    closing.callback(check.close)
    return check


class Worker(Protocol):
    """An object that works in a thread of its own, such as the check of the weights."""

    def start(self) -> None:
        """Begins the thread."""


def begin_close(machine: Machine, *workers: Worker) -> None:
    """Starts the workers' threads on the processors of this process's share of the machine, so that memory that they
    touch first is close."""
    with here.beginning_on(machine.close):
        for worker in workers:
            worker.start()


def settler_of(weights: ModelWeights, machine: Machine) -> Settler:
    """Returns the object that copies mapped weights into huge pages in the background. It does nothing on a machine
    without huge pages."""
    nothing = np.empty(0, np.uint8)
    mapped = weights.mapped if weights.mapped is not None and machine.huge_pages else nothing
    return Settler(mapped, settle, HUGE_PAGE_BYTES)
