"""Identifies a checkpoint by 32 hex digits, without reading all of it.

The digits are blake2b of the bytes of config.json and of five parts of each shard, in order of name. The parts are its
name, size, modification time in nanoseconds, header bytes, and SAMPLES blocks of SAMPLE_BYTES spread evenly over its
data. A file that is edited gets another modification time. If a file is replaced and the new one has the old time, its
header differs or, almost surely, a sampled block does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.json_file import read_bytes
from twostroke.weights.quantized.recipe import SIDE_FILES

SAMPLES = 16
SAMPLE_BYTES = 4096


def fingerprint(checkpoint: Checkpoint) -> str:
    """Returns 32 hex digits for the open checkpoint and its config.json. Raises CorruptModel where config.json is
    missing."""
    return _of(checkpoint, lambda name, status: f"{name} {status.st_size} {status.st_mtime_ns}")


def content_fingerprint(checkpoint: Checkpoint) -> str:
    """Returns a fingerprint without times: it is the same for copies of a checkpoint on several machines."""
    return _of(checkpoint, lambda name, status: f"{name} {status.st_size}")


def content_of_folder(folder: Path) -> str:
    """Returns the content_fingerprint of a folder's checkpoint. Raises ModelError."""
    with Checkpoint.open(folder) as checkpoint:
        return content_fingerprint(checkpoint)


def _of(checkpoint: Checkpoint, words: Callable[[str, os.stat_result], str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, read_bytes(checkpoint.folder / "config.json"))
    for beside in SIDE_FILES:
        if (checkpoint.folder / beside).is_file():
            _add(digest, read_bytes(checkpoint.folder / beside))
    for name, shard in checkpoint.shards.items():
        status = os.stat(shard.path)
        _add(digest, words(name, status).encode())
        _add(digest, shard.header)
        for i in range(SAMPLES):
            _add(digest, shard.read_at(status.st_size * i // SAMPLES, SAMPLE_BYTES))
        _add(digest, shard.read_at(max(0, status.st_size - SAMPLE_BYTES), SAMPLE_BYTES))
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, part: bytes) -> None:
    """Adds a part after its length, so that no two lists of parts give the same bytes."""
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)
