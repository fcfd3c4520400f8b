"""Reads and writes key_factors.json: the factors, found by calibration, by which each channel of K is divided before it
is kept in int8 or int4.

    {"version": 1, "model": FINGERPRINT, "exponents": {"int4": {"0": [[2, 0, ...], ...], ...}, "int8": {...}},
     "without_bias": [0, ...]}

The numbers for one cache of K and V are exponents of two: one list for each KV head, one whole number for each of its
channels. A cache is named by its place among the program's caches. The fingerprint is that of config.json and the
weights, so that the file of another model is refused. `without_bias` names the caches whose keys had lost the shared
part of their bias before they were measured (ADR 83). A file without this field was measured on keys with their bias.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.ops.program.values import PagedKV
from twostroke.types.errors import ConfigError, CorruptModel
from twostroke.types.spec.formats import KVKind
from twostroke.weights.json_file import read_object
from twostroke.weights.packed.fingerprint import content_of_folder

NAME = "key_factors.json"
VERSION = 1
MOST = 24
"""The largest magnitude of the exponent e of a factor 2^e by which a channel of K is divided. Real models need much
smaller exponents."""
FIX = f"Run `twostroke quantize MODEL --to keys` again, or delete {NAME}."

Exponents = Mapping[int, tuple[tuple[int, ...], ...]]
"""The exponents of the powers of two by which K is divided, for each cache of K and V by its index. Each cache has a
list for each KV head, with one exponent for each channel."""


class KeyFactors(Struct, frozen=True):
    """The powers of two by which the channels of K are divided before K is kept in int8 or int4. exponents: their
    exponents, by the name of the format of K and V for which they were chosen. without_bias: the caches whose keys had
    lost the shared part of their bias before they were measured, by their indices in order."""

    exponents: Mapping[str, Exponents]
    without_bias: tuple[int, ...] = ()

    def factors(self, kind: KVKind) -> dict[int, tuple[float, ...]]:
        """Returns the numbers by which the channels of K are divided, for each cache by its index, one KV head after
        the other. A cache whose factors are all 1 is left out. The result is empty for a format without exponents."""
        found = self.exponents.get(kind.name.lower(), {})
        factors = {index: tuple(2.0**each for head in heads for each in head) for index, heads in found.items()}
        return {index: each for index, each in factors.items() if set(each) != {1.0}}

    def digest(self, kind: KVKind) -> str:
        """Returns 16 hex digits that are equal for equal factors; "" where there are no factors."""
        found = sorted(self.factors(kind).items())
        return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest() if found else ""


def require_same_model(folder: Path, output: Path) -> None:
    """Raises ConfigError where `output` has another model than `folder`, ModelError where `output` has no model."""
    if output != folder and content_of_folder(output) != content_of_folder(folder):
        raise ConfigError(
            f"{output} does not hold the model of {folder}.",
            why=f"{NAME} must be next to the weights of its calibration.",
            fix="Leave --output out, or name a copy of the model's folder.",
        )


def write_key_factors(folder: Path, found: KeyFactors) -> Path:
    """Writes the factors by which channels of K are divided to key_factors.json in a model's folder. Returns the file's
    path. Raises ModelError; raises ConfigError where the file cannot be written."""
    said = {
        "version": VERSION,
        "model": content_of_folder(folder),
        "exponents": {
            name: {str(index): heads for index, heads in each.items()} for name, each in found.exponents.items()
        },
        "without_bias": list(found.without_bias),
    }
    path = folder / NAME
    unfinished = path.with_name(f".{NAME}.new")
    try:
        unfinished.write_text(json.dumps(said) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written.", why=f"{error.strerror}.", fix="Name a copy of the model's folder by --output."
        ) from None
    return path


def read_key_factors(
    folder: Path, caches: Mapping[int, PagedKV], without_bias: tuple[int, ...] = ()
) -> KeyFactors | None:
    """Reads key_factors.json of a model's folder: the factors by which channels of K are divided before K is kept in
    int8 or int4. Returns None where there is no such file. caches: the caches of K and V that the file must name.
    without_bias: those of them whose keys lose the shared part of their bias (`ops/passes/scaled_keys.py`).

    Raises CorruptModel for a file that is not sound, belongs to another model, or was measured on other keys.
    """
    path = folder / NAME
    if not path.exists():
        return None
    said = read_object(path)
    if said.get("version") != VERSION:
        raise CorruptModel(f"{path} is of version {said.get('version')!r:.20}, and {VERSION} is read.", fix=FIX)
    if said.get("model") != content_of_folder(folder):
        raise CorruptModel(
            f"{path} belongs to another model.",
            why="Factors of keys hold for the weights that they were calibrated with.",
            fix=FIX,
        )
    _require_same_keys(path, said.get("without_bias", []), without_bias)
    formats = said.get("exponents")
    if not isinstance(formats, dict) or not set(formats) <= {"int8", "int4"}:
        raise CorruptModel(f"{path}: `exponents` must be an object with int8 and int4.", fix=FIX)
    read = {name: _exponents(path, name, each, caches) for name, each in formats.items()}
    return KeyFactors(read, without_bias)


def _require_same_keys(path: Path, measured: Any, kept: tuple[int, ...]) -> None:
    """Raises CorruptModel where the factors were measured on other keys than those that this program keeps. Channels
    whose bias is subtracted today have factors for the bias: their keys would lose digits."""
    if measured == list(kept):
        return
    if measured == []:
        raise CorruptModel(
            f"{path} was made by an older version, from keys with their bias.",
            why="Keys now lose the shared part of their bias before they are kept, and need other factors.",
            fix=FIX,
        )
    raise CorruptModel(
        f"{path} was measured on other keys than this version keeps.",
        why=f"`without_bias` is {measured!r:.60}, and must be {list(kept)!r:.60}.",
        fix=FIX,
    )


def _exponents(path: Path, name: str, said: Any, caches: Mapping[int, PagedKV]) -> Exponents:
    known = {str(index): index for index in caches}
    if not isinstance(said, dict) or set(said) != set(known):
        raise CorruptModel(f"{path}: {name} must name the caches {', '.join(known) or '(none)'}.", fix=FIX)
    return {index: _heads(f"{path}: {name}, cache {key}", said[key], caches[index]) for key, index in known.items()}


def _heads(where: str, said: Any, kind: PagedKV) -> tuple[tuple[int, ...], ...]:
    rows = said if isinstance(said, list) else []
    if len(rows) != kind.kv_heads or any(not isinstance(row, list) or len(row) != kind.head_dim for row in rows):
        raise CorruptModel(
            f"{where} must have {kind.kv_heads} lists of {kind.head_dim} exponents.",
            why="The model has as many heads of K, with as many channels.",
            fix=FIX,
        )
    wrong = next((each for row in rows for each in row if type(each) is not int or abs(each) > MOST), None)
    if wrong is not None:
        raise CorruptModel(f"{where}: {wrong!r:.30} is no whole number from -{MOST} to {MOST}.", fix=FIX)
    return tuple(map(tuple, rows))
