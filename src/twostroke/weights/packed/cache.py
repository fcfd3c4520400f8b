"""The cache of packed weights: the first start packs into memory and writes the file after its first answers
(fresh_file.py), and every later start maps the file.

    folder/<fingerprint>-<formats and layout>.pack

Two processes that start at once both pack, each into a file of its own, and the last rename wins. Both files are whole,
and a mapping keeps the bytes of the file from which it was made. Files that are stale or broken are replaced. Where
there is no room, files that are not in use are removed, the least recently used first (room.py). Where the folder
cannot hold the file even then, or is not writable, weights are packed into memory. `warn` gets a sentence in both
cases.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.values import Vector, Weight
from twostroke.types.reading.user_path import is_there
from twostroke.types.spec.formats import WeightFormat
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import Progress, pack_into
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.background_check import MappedFile
from twostroke.weights.packed.blobs import plan_blobs, weights_from_blobs
from twostroke.weights.packed.cold_file import read_cold
from twostroke.weights.packed.file import PackedFile, PartialFile, header_of, map_file, new_file, remove_abandoned
from twostroke.weights.packed.fingerprint import fingerprint
from twostroke.weights.packed.fresh_file import FreshFile, PackedImage
from twostroke.weights.packed.header import FilePlan, Key, StaleFile, plan_file
from twostroke.weights.packed.room import KeptFolder
from twostroke.weights.packing.rounded_packing import Packer
from twostroke.weights.tensors import check_tensors

LAYOUT = "4"
"""The version of the packed layouts. It is raised whenever they, the codec's rounding or the order of fused rows
change."""


class CacheEntry(Struct, frozen=True):
    """One model in one set of formats: the path of its file, which may not exist yet, and the planned content."""

    path: Path
    plan: FilePlan


class CachedWeights(Struct, frozen=True):
    """weights: the packed weights. file: the mapped file that holds them; None where they were packed into memory.
    sources: the files of the checkpoint."""

    weights: ModelWeights
    file: MappedFile | None = None
    sources: tuple[Path, ...] = ()


def cache_entry(folder: Path, checkpoint: Checkpoint, model: Model, format_for: FormatChoice) -> CacheEntry:
    """Returns the entry of an open checkpoint in a cache folder; reads headers and samples, not weights."""
    key = cache_key(checkpoint, model, format_for)
    digest = hashlib.blake2b(repr(sorted(key.items())).encode(), digest_size=8).hexdigest()
    path = folder / f"{key['fingerprint']}-{digest}.pack"
    return CacheEntry(path, plan_file(key, plan_blobs(model, format_for)))


def cache_key(checkpoint: Checkpoint, model: Model, format_for: FormatChoice) -> Key:
    """Returns everything on which the packed bytes depend."""
    formats = [(weight, format_for(weight)) for weight in model.program.weights]
    words = list(dict.fromkeys(f"{_role(weight)}={_words(chosen)}" for weight, chosen in formats))
    part = {"part": model.part} if model.part else {}
    numbers = _numbers(model.program.vectors)
    key = {"fingerprint": fingerprint(checkpoint), "formats": " ".join(words), "layout": LAYOUT}
    return key | part | ({"numbers": numbers} if numbers else {})


def _numbers(vectors: Iterable[Vector]) -> str:
    """Returns 16 hex digits of the numbers of vectors that follow from this program, and not from the checkpoint alone.
    Examples are the slopes of ALiBi and the mean rotations of a bias (VectorForm.SHARED_BIAS). Returns "" where there
    are none."""
    found = [vector for vector in vectors if vector.numbers]
    digest = hashlib.blake2b(digest_size=8)
    for vector in found:
        digest.update(f"{vector.key} {vector.form.name} {len(vector.numbers)} ".encode())
        digest.update(array("d", vector.numbers).tobytes())
    return digest.hexdigest() if found else ""


def _words(chosen: WeightFormat) -> str:
    return f"{chosen.kind.name}/{chosen.group}" + (f" rotated by {chosen.rotated}" if chosen.rotated else "")


def _role(weight: Weight) -> str:
    lost = "" if weight.lost_by is None else f" lost by {_words(weight.lost_by)}"
    return f"{weight.role}{lost}" + ("" if weight.order is None else ", columns sorted")


def cached_weights(
    folder: KeptFolder,
    checkpoint: Checkpoint,
    model: Model,
    format_for: FormatChoice,
    packer: Packer,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> CachedWeights:
    """Returns weights from the cache folder; they are packed first where the folder does not have them.

    `progress` is called while weights are packed, and while a packed file that is not in memory is read. Raises
    CorruptModel or UnsupportedModel; a problem with the cache itself is never an error, only a sentence for `warn`.
    """
    checkpoint = check_tensors(checkpoint, model)
    entry = cache_entry(folder.path, checkpoint, model, format_for)
    if is_there(entry.path):
        try:
            told = progress if folder.holds(entry.plan.file_bytes) else None
            mapped = map_file(entry.path, entry.plan, lambda file: _read_cold(file, told))
            weights = weights_from_blobs(model, format_for, entry.plan.blobs(mapped.whole).__getitem__)
            return CachedWeights(replace(weights, mapped=mapped.whole), mapped)
        except StaleFile as reason:
            warn(f"The packed weights in {entry.path} are made anew: {reason}.")
    else:
        _tell_older(folder.path, entry, warn)
    with ExitStack() as closing:
        file = _new_file(folder, entry, checkpoint.origin, warn, closing)
        image = PackedImage(entry.plan, None if file is None else file.whole)
        pack_into(image, checkpoint, model, format_for, packer, progress)
        image.require_filled()
        weights = weights_from_blobs(model, format_for, entry.plan.blobs(image.whole).__getitem__)
        fresh = None if file is None else FreshFile(file, image.whole, warn, closing.pop_all())
    return CachedWeights(weights, fresh)


def _read_cold(file: PackedFile, progress: Progress | None) -> None:
    if progress is not None:
        read_cold(file.path, file.whole, progress, compare=file.check_bytes)


def _tell_older(folder: Path, entry: CacheEntry, warn: Callable[[str], None]) -> None:
    """Warns of files of this checkpoint that were packed in another layout. The warning explains why a start after an
    update packs again."""
    found: list[Path] = []
    with suppress(OSError):
        found = sorted(folder.glob(f"{entry.plan.key['fingerprint']}-*.pack"))
    for path in found:
        with suppress(StaleFile, OSError):
            layout = header_of(path).key.get("layout")
            if layout != LAYOUT:
                warn(
                    f"The packed weights in {path} have layout {layout}; this version packs layout {LAYOUT}. They are"
                    " packed anew, and the old file is removed when its room is needed."
                )


def _new_file(
    folder: KeptFolder, entry: CacheEntry, origin: str, warn: Callable[[str], None], closing: ExitStack
) -> PartialFile | None:
    """Returns a new file for weights that are packed now; None where the folder cannot hold it. `closing` closes the
    file."""
    try:
        if entry.path.is_dir():
            raise OSError("a folder has the name of their file")
        remove_abandoned(folder.path)
        folder.make_room(entry.path, entry.plan.file_bytes, warn)
        file = closing.enter_context(new_file(entry.path, entry.plan, origin))
        if not folder.holds(entry.plan.file_bytes):
            file.take_whole()
        return file
    except OSError as reason:
        words = reason.strerror or str(reason)
        warn(f"Packed weights cannot be kept in {folder.path}: {words}. They are packed into memory, at every start.")
        return None
