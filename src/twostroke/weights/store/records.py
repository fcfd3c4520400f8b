"""A record for each model that was pulled: the hub's description of it, and the time of the download.

    folder/<digest of the reference>.json

Records only add to what the hub's cache shows. If one is lost or damaged, only its own content is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

from twostroke.types.reading.decoders import json_decoder
from twostroke.weights.store.whole_file import write_whole

RECORDS = "store"
"""The name of the subfolder of the cache in which these records lie."""


class PullRecord(Struct, frozen=True):
    """The hub's description of a model that was pulled. reference: the full name of the model, for example
    publisher/model:Q4_K_M@revision. files: name -> bytes. pulled_s: the time of the download as Unix time."""

    reference: str
    repo_id: str
    commit: str
    files: dict[str, int]
    license: str
    gated: bool
    pulled_s: float


_DECODER = json_decoder(PullRecord)


def keep_record(folder: Path, record: PullRecord) -> str | None:
    """Writes the record of a pulled model. Returns the reason why it could not be written; None where it was written.
    """
    try:
        write_whole(_path(folder, record.reference), msgspec.json.encode(record).decode())
    except OSError as error:
        return f"{error.strerror or error}"
    return None


def read_record(folder: Path, reference: str) -> PullRecord | None:
    """Returns the record of a pulled model; None where there is none that can be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return _DECODER.decode(_path(folder, reference).read_bytes())
    return None


def forget_record(folder: Path, reference: str) -> None:
    """Removes the record of a pulled model. Does nothing where there is none, or where it cannot be deleted."""
    with contextlib.suppress(OSError):
        _path(folder, reference).unlink()


def _path(folder: Path, reference: str) -> Path:
    return folder / f"{hashlib.blake2b(reference.lower().encode(), digest_size=8).hexdigest()}.json"
