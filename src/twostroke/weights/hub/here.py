"""Finds a repository of a hub in the cache on this machine, also where its id is written with other capitals, and the
snapshot that has the model.

The hub ignores capitals in ids, but the cache's folders do not. A model that was downloaded at a commit has no branch
in the cache. One that was downloaded before an update of its repository lies in an older snapshot.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from twostroke.types.errors import ModelNotFound
from twostroke.weights.gguf.file_names import ENDING, chosen, whole_models
from twostroke.weights.hub.place import HubPlace

_FOLDER = "models--"
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")


def spelled(repo_id: str, cache: Path) -> str:
    """Returns the id as the cache spells it, where both differ in capitals alone; else the id itself."""
    own = _FOLDER + repo_id.replace("/", "--")
    with contextlib.suppress(OSError):
        if not (cache / own).is_dir():
            names = [path.name for path in cache.iterdir() if path.name.lower() == own.lower()]
            return names[0].removeprefix(_FOLDER).replace("--", "/", 1) if len(names) == 1 else repo_id
    return repo_id


def at_hand(place: HubPlace, wanted: str | None) -> HubPlace:
    """Returns the place with two changes. The id has the capitals that the cache uses. The revision is the commit of a
    snapshot on this machine that has the model. wanted: a quantization or a file; None for the usual choice.

    The snapshot of the branch main is tried first, then the others, newest first. If `place` names a revision, only
    this revision is used. Where no snapshot has the model, the revision stays as it is.
    """
    place = replace(place, repo_id=spelled(place.repo_id, place.cache))
    with contextlib.suppress(OSError):
        if place.revision is not None:
            return replace(place, revision=_whole_commit(place.folder, place.revision))
        for commit in _commits(place.folder):
            if _has(place.folder / "snapshots" / commit, wanted, place.repo_id):
                return replace(place, revision=commit)
    return place


def _commits(folder: Path) -> Iterator[str]:
    """Yields the commits of a repository's snapshots: that of the branch main first, then the others, newest first."""
    main = folder / "refs" / "main"
    first = main.read_text().strip() if main.is_file() else ""
    if first:
        yield first
    snapshots = [path for path in (folder / "snapshots").glob("*") if path.is_dir() and path.name != first]
    yield from (path.name for path in sorted(snapshots, key=lambda path: -path.stat().st_mtime))


def _has(snapshot: Path, wanted: str | None, repo_id: str) -> bool:
    names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.suffix.lower() == ENDING]
    if wanted is None:
        return (snapshot / "config.json").is_file() or bool(whole_models(names))
    with contextlib.suppress(ModelNotFound):
        return bool(chosen(names, wanted, repo_id))
    return False


def _whole_commit(folder: Path, revision: str) -> str:
    """Returns the whole commit for the beginning of a commit. Returns any other revision unchanged."""
    if (folder / "refs" / revision).is_file() or not _SHORT_COMMIT.fullmatch(revision):
        return revision
    found = [path.name for path in (folder / "snapshots").glob(f"{revision}*")]
    return found[0] if len(found) == 1 else revision
