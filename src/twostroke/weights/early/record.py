"""Records the files that the last start of a model read, so that the next start can read them before it knows the
model: CACHE/starts/*.json.

    {"model": WORD, "last": FORMAT, "starts": {FORMAT: {"packed": PATH or null, "sources": [[PATH, SIZE, TIME], ...]}}}

A record decides nothing. Where it is wrong or missing, a start reads its files a little later.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twostroke.weights.early.reading import weight_files

FOLDER = "starts"
"""The part of the cache folder that belongs to this module."""
MOST_FORMATS = 8
MOST_BYTES = 1 << 20


def remember(folder: Path, model: str, weights: str, packed: Path | None, sources: Iterable[Path]) -> None:
    """Records the files that a start has read. weights: the format that was resolved. packed: the file that later
    starts map; None where they read the sources. If the record cannot be written, it is left out."""
    path, found = _place(folder, model), _read(folder, model)
    known = found.get("starts", {})
    now = {"packed": None if packed is None else str(packed), "sources": [_mark(str(source)) for source in sources]}
    kept = {name: known[name] for name in list(known)[-MOST_FORMATS + 1 :] if name != weights}
    record = {"model": _word(model), "last": weights, "starts": {**kept, weights: now}}
    if record == found:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(record), encoding="utf-8")
        os.replace(partial, path)


def files_of(folder: Path, model: str, weights: str | None) -> list[str]:
    """Returns the files that a start of this model will probably read, in order; none where no file is known. weights:
    the format that is asked for, or None."""
    found = _read(folder, model)
    start = found.get("starts", {}).get(weights or found.get("last"))
    if start is None:
        return list(weight_files(model))
    sources, packed = start["sources"], start["packed"]
    if packed is None or not os.path.isfile(packed) or any(_mark(path) != [path, *rest] for path, *rest in sources):
        return [path for path, *_ in sources]
    return [packed]


def named_model(words: Sequence[str], folder: Path) -> str | None:
    """Returns the first of a command's words that names a model: a file or folder with weights, or a model whose files
    an earlier start recorded. Returns None where there is no such word."""
    plain = (word for word in words if word and not word.startswith("-"))
    return next((word for word in plain if _place(folder, word).is_file() or any(weight_files(word))), None)


def _place(folder: Path, model: str) -> Path:
    return folder / FOLDER / f"{zlib.crc32(os.fsencode(_word(model))):08x}.json"


def _word(model: str) -> str:
    """Returns a path as an absolute path, which means the same file from every folder, and any other word unchanged."""
    return os.path.abspath(model) if os.path.exists(model) else model


def _read(folder: Path, model: str) -> Mapping[str, Any]:
    """Returns the recorded files of earlier starts of this model (see the module for their form). The result is empty
    where there is no record, or where the file is not a record."""
    try:
        with _place(folder, model).open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        starts = found["starts"]
        whole = found["model"] == _word(model) and all(map(_is_start, starts.values())) and found["last"] in starts
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
    return found if whole else {}


def _is_start(start: Any) -> bool:
    packed, sources = start["packed"], start["sources"]
    named = packed is None or isinstance(packed, str)
    return named and all(isinstance(each[0], str) and len(each) == 3 for each in sources)


def _mark(path: str) -> list[Any]:
    """Returns the path, with the size and time that change when the file does; both are 0 for a file that does not
    exist."""
    try:
        status = os.stat(path)
    except OSError:
        return [path, 0, 0]
    return [path, status.st_size, status.st_mtime_ns]
