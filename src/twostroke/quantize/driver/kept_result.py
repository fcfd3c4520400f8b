"""Remembers, in the cache folder, where a model's calibrated weights are. `--weights int4` then uses that folder.

    cache/calibrated/<fingerprint of the original>-int4.json    {"folder": ..., "content": fingerprint of the result}

The fingerprint is that of the packed weights: with another config.json, or other weights, no note is found. A result
that was moved or changed since is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twostroke.types.errors import ModelError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.json_file import read_object
from twostroke.weights.packed.fingerprint import content_of_folder, fingerprint

NOTES = "calibrated"
"""The folder inside the cache folder where the files of this module are."""

TAKEN_BY: Mapping[str, str] = {"int4": "int4"}
"""For each method of calibration, the value of `--weights` that loads the calibrated weights instead of rounding the
original. It has int4 alone, because other formats lose too little to be worth a calibration."""


@dataclass(frozen=True, slots=True)
class KeptResult:
    """Where the calibrated weights of a model are. folder: their folder; None where it cannot be used any more, for the
    reason `why`."""

    folder: Path | None
    why: str = ""


def note_result(cache: Path, original: Path, result: Path, method: str) -> str | None:
    """Remembers that `result` has the calibrated weights of the model in `original`. Returns the value of `--weights`,
    such as "int4", that loads these weights from now on. Returns None for a method without such a value, or where the
    cache folder cannot be written."""
    name = TAKEN_BY.get(method)
    if name is None:
        return None
    said = {"folder": str(result.resolve()), "content": content_of_folder(result)}
    try:
        place = _place(cache, original, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(said), encoding="utf-8")
    except OSError:
        return None  # the result is complete without this note
    return name


def kept_result(cache: Path, original: Path, weights: str) -> KeptResult | None:
    """Returns where the calibrated weights of the model in `original` are; None where it was never calibrated, or has
    changed since."""
    if weights not in TAKEN_BY.values():
        return None
    try:
        place = _place(cache, original, weights)
        said = read_object(place) if place.is_file() else {}
    except (ModelError, OSError):
        return None
    if not isinstance(said.get("folder"), str):
        return None
    folder = Path(said["folder"])
    try:
        same = folder.is_dir() and content_of_folder(folder) == said.get("content")
    except (ModelError, OSError):
        same = False
    return KeptResult(folder) if same else KeptResult(None, f"{folder} is gone or was changed")


def _place(cache: Path, original: Path, name: str) -> Path:
    with Checkpoint.open(original) as checkpoint:
        return cache / NOTES / f"{fingerprint(checkpoint)}-{name}.json"
