"""The cache of packed weights: the first start packs into a file and answers from it while the file is made durable
(fresh_file.py), every later one maps it.

    folder/<fingerprint>-<formats and layout>.pack

Two processes that start at once both pack, each into a file of its own, and the last rename wins. Both files are whole,
and a mapping keeps the bytes of the file it was made of. Files that are stale or broken are replaced. Where the folder
cannot hold the file (no room, not writable), weights are packed into memory and the reason goes to `warn`.

Knows: when a file can stand for a checkpoint.
Must not know: which folder a user wants, what a packer computes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from twostroke.program.model import Model
from twostroke.program.op import FormatChoice
from twostroke.program.values import Weight
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import Packer, Progress, load_weights, pack_into
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.background_check import MappedFile
from twostroke.weights.packed.blobs import plan_blobs, weights_from_blobs
from twostroke.weights.packed.file import PackedFile, map_file, new_file, remove_abandoned
from twostroke.weights.packed.fingerprint import fingerprint
from twostroke.weights.packed.fresh_file import FreshFile
from twostroke.weights.packed.header import FilePlan, Key, StaleFile, plan_file
from twostroke.weights.tensors import check_tensors

LAYOUT = "3"
"""Raised whenever the packed layouts, the codec's rounding or the order of fused rows change."""

NO_CACHE = "off"
"""Asked for instead of a folder."""

PACKED = "packed"
"""The part of the cache folder that is this module's."""

KEPT_FREE_BYTES = 256 << 20
"""Left free on the disk of the cache, for other programs."""


def kept_folder(asked: str | None, usual: Path) -> Path | None:
    """The cache folder, by what was asked for; None where none is kept."""
    return None if asked == NO_CACHE else Path(asked).expanduser() if asked else usual


class CacheEntry(Struct, frozen=True):
    """One model in one set of formats: where its file is (or will be), and how it must look."""

    path: Path
    plan: FilePlan


class CachedWeights(Struct, frozen=True):
    """Weights, and the file that they are views of; None where they were packed into memory."""

    weights: ModelWeights
    file: MappedFile | None = None


def cache_entry(folder: Path, checkpoint: Checkpoint, model: Model, format_for: FormatChoice) -> CacheEntry:
    """The entry of an open checkpoint in a cache folder; reads headers and samples, not weights."""
    key = cache_key(checkpoint, model, format_for)
    digest = hashlib.blake2b(repr(sorted(key.items())).encode(), digest_size=8).hexdigest()
    path = folder / f"{key['fingerprint']}-{digest}.pack"
    return CacheEntry(path, plan_file(key, plan_blobs(model, format_for)))


def cache_key(checkpoint: Checkpoint, model: Model, format_for: FormatChoice) -> Key:
    """Everything that the packed bytes depend on."""
    formats = [(weight, format_for(weight)) for weight in model.program.weights]
    words = list(dict.fromkeys(f"{_role(weight)}={chosen.kind.name}/{chosen.group}" for weight, chosen in formats))
    part = {"part": model.part} if model.part else {}
    return {"fingerprint": fingerprint(checkpoint), "formats": " ".join(words), "layout": LAYOUT, **part}


def _role(weight: Weight) -> str:
    return weight.role if weight.order is None else f"{weight.role}, columns sorted"


def cached_weights(
    folder: Path,
    checkpoint: Checkpoint,
    model: Model,
    format_for: FormatChoice,
    packer: Packer,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> CachedWeights:
    """Weights from the cache folder; packed into it first where they are not there yet.

    `progress` is called only while packing. Raises CorruptModel or UnsupportedModel; trouble with the cache itself is
    never an error, only a sentence for `warn`.
    """
    checkpoint = check_tensors(checkpoint, model)
    entry = cache_entry(folder, checkpoint, model, format_for)
    if entry.path.exists():
        try:
            file = map_file(entry.path, entry.plan)
            return _of_file(file, entry, model, format_for)
        except StaleFile as reason:
            warn(f"The packed weights in {entry.path} are made anew: {reason}.")
    try:
        remove_abandoned(folder)
        _require_room(entry)
        with ExitStack() as closing:
            target = closing.enter_context(new_file(entry.path, entry.plan, checkpoint.origin))
            pack_into(target, checkpoint, model, format_for, packer, progress)
            fresh = FreshFile(target)
            fresh.closing = closing.pop_all()
            return _of_file(fresh, entry, model, format_for)
    except OSError as reason:
        words = getattr(reason, "strerror", None) or str(reason)
        warn(f"Packed weights cannot be kept in {folder}: {words}. They are packed into memory, at every start.")
    return CachedWeights(load_weights(checkpoint, model, format_for, packer, progress))


def _of_file(file: PackedFile | FreshFile, entry: CacheEntry, model: Model, format_for: FormatChoice) -> CachedWeights:
    weights = weights_from_blobs(model, format_for, entry.plan.blobs(file.whole).__getitem__)
    return CachedWeights(replace(weights, mapped=file.whole), file)


def _require_room(entry: CacheEntry) -> None:
    folder = entry.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    if entry.path.is_dir():
        raise OSError("a folder has the name of their file")
    free_bytes = shutil.disk_usage(folder).free
    if entry.plan.file_bytes + KEPT_FREE_BYTES > free_bytes:
        raise OSError(
            f"they need {entry.plan.file_bytes / 1e9:.2f} GB and {KEPT_FREE_BYTES / 1e9:.2f} GB to spare,"
            f" {free_bytes / 1e9:.2f} GB are free"
        )
