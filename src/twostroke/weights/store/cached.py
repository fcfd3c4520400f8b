"""The content of the hub's cache: models with their bytes, and the exact bytes that removing one would free.

A blob is freed when no snapshot of its repository, and no other repository, points at it any more. huggingface_hub may
keep one blob for several repositories; a repository's blob is a link then.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from twostroke.types.errors import ConfigError
from twostroke.weights.gguf.file_names import ENDING, named, of_quant, parts_of, quant_of, stem_of, whole_models

_FOLDER = "models--"
_WEIGHTS = (".safetensors", ENDING)
_PARTIALS = (".incomplete", ".twostroke-partial")


class CachedModel(Struct, frozen=True):
    """A model in the hub's cache. name: the name that `serve` takes. files: the files of one snapshot. used_s: Unix
    time of the newest file. whole: False where the repository has only the beginnings of files, or no weights, as after
    `plan`."""

    name: str
    repo_id: str
    num_bytes: int
    files: tuple[str, ...]
    used_s: float
    whole: bool = True


class Removal(Struct, frozen=True):
    """What is deleted when a model is removed from the hub's cache. links: the names in snapshots that are removed.
    blobs: the files with bytes for which no name is left. folder: the folder of a repository that is removed
    completely."""

    links: tuple[Path, ...]
    blobs: tuple[Path, ...]
    num_bytes: int
    folder: Path | None = None


def cached_models(cache: Path) -> list[CachedModel]:
    """Returns all models of the cache, by name. A repository of GGUF files has one entry for each model. Raises
    ConfigError for a cache that cannot be read."""
    return [model for folder in _repositories(cache) for model in _models_of(folder)]


def removal_of(cache: Path, repo_id: str, wanted: Sequence[str] | None = None) -> Removal | None:
    """Returns the files to remove for a repository, or for the named files of it; None where the repository is not on
    this machine."""
    folder = cache / (_FOLDER + repo_id.replace("/", "--"))
    if not folder.is_dir():
        return None
    links = [path for path in _names(folder) if wanted is None or _inner(folder, path) in wanted]
    left = [path for path in _names(folder) if path not in set(links)]
    whole = wanted is None or not left
    kept = {os.path.realpath(path) for path in left} | _targets_elsewhere(cache, folder)
    gone = [*links, *(_files(folder / "blobs") if whole else [])]
    sizes = {real: size for path in gone if (real := os.path.realpath(path)) not in kept and (size := _size(real)) >= 0}
    own_links = [path for path in _files(folder / "blobs") if path.is_symlink() and os.path.realpath(path) in sizes]
    blobs = sorted({*map(Path, sizes), *own_links})
    return Removal(tuple(links), tuple(blobs), sum(sizes.values()), folder if whole else None)


def remove(removal: Removal) -> None:
    """Deletes the files, blobs first. After an interrupted removal, the links that are left lead the next removal to
    the rest, and show that the model is here only in part. Raises ConfigError where deleting is not allowed."""
    try:
        for path in (*removal.blobs, *removal.links):
            path.unlink(missing_ok=True)
        if removal.folder is not None:
            _remove_folder(removal.folder)
    except OSError as error:
        raise ConfigError(
            f"{error.filename} cannot be deleted.",
            why=f"{error.strerror}.",
            fix="Check who owns the folder; what is left can be removed by the same command.",
        ) from None


def _remove_folder(folder: Path) -> None:
    """Deletes a folder, of which another process may delete files at the same moment. Raises OSError."""
    while folder.is_dir():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def revisions_of(cache: Path, repo_id: str) -> list[str]:
    """Returns the commits of a repository that are on this machine."""
    found = (cache / (_FOLDER + repo_id.replace("/", "--")) / "snapshots").glob("*")
    return sorted(path.name for path in found if path.is_dir())


def _repositories(cache: Path) -> list[Path]:
    """Returns the folders of all repositories; none where there is no cache. Raises ConfigError for a cache that cannot
    be read: such a cache is not an empty one."""
    try:
        found = sorted(cache.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(
            f"The hub's cache, {cache}, cannot be read.",
            why=f"{error.strerror}.",
            fix="Check who owns the folder, or name another one in HF_HUB_CACHE.",
        ) from None
    return [path for path in found if fnmatchcase(path.name, _FOLDER + "*--*") and path.is_dir()]


def _models_of(folder: Path) -> Iterator[CachedModel]:
    repo_id = folder.name.removeprefix(_FOLDER).replace("--", "/", 1)
    found: dict[str, Path] = {_inner(folder, path): path for path in _names(folder)}
    models = whole_models(found)
    for first in models:
        yield _model(f"{repo_id}:{quant_of(first)}", repo_id, {name: found[name] for name in parts_of(first, found)})
    if not models and found:
        yield _model(repo_id, repo_id, found)
    if not found:
        partials = [path for path in _files(folder / "blobs") if path.name.endswith(_PARTIALS)]
        size = sum(max(0, _size(path)) for path in partials)
        yield CachedModel(repo_id, repo_id, size, (), _time(folder), whole=False)


def _model(name: str, repo_id: str, found: dict[str, Path]) -> CachedModel:
    real = {os.path.realpath(path) for path in found.values()}
    size = sum(max(0, _size(path)) for path in real)
    missing = any(_size(path) < 0 for path in real) or not any(name.lower().endswith(_WEIGHTS) for name in found)
    return CachedModel(name, repo_id, size, tuple(sorted(found)), max(map(_time, found.values())), not missing)


def _names(folder: Path) -> list[Path]:
    """Returns the paths of all files in all snapshots of a repository."""
    return _files(folder / "snapshots")


def _files(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return []


def _inner(folder: Path, path: Path) -> str:
    """Returns a file's name relative to the snapshot in which it lies. folder: the repository's folder in the hub's
    cache."""
    return "/".join(path.relative_to(folder / "snapshots").parts[1:])


def _targets_elsewhere(cache: Path, folder: Path) -> set[str]:
    """Returns the files to which links in other repositories' blob folders point."""
    others = (path for other in _repositories(cache) if other != folder for path in _files(other / "blobs"))
    return {os.path.realpath(path) for path in others}


def _size(path: Path | str) -> int:
    """Returns the size of a file in bytes; -1 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def files_meant(names: Sequence[str], wanted: str) -> list[str]:
    """Returns the cached files of a repository that `wanted` selects, with all their parts. wanted: the text after the
    colon of a model's name. As `twostroke run` does, the function compares it with the names of files, with or without
    their folders, and then with quantizations."""
    models = whole_models(names)
    found = named(models, wanted) or of_quant(models, stem_of(wanted)) or named(names, wanted)
    return [part for name in found for part in parts_of(name, names)]


def names_like(name: str, models: Sequence[CachedModel]) -> list[str]:
    """Returns the names of cached models that a text without a publisher may mean. The text is compared with the
    beginnings of the names of files and repositories, without regard to capitals."""
    family, _, quant = name.lower().partition(":")
    word = stem_of(family)
    if not word or "/" in word:
        return []
    found = []
    for model in models:
        texts = (model.repo_id.lower().partition("/")[2], *map(_stem, model.files))
        if any(text.startswith(word) for text in texts) and model.name.lower().endswith(f":{quant}" if quant else ""):
            found.append(model.name)
    return found


def _stem(name: str) -> str:
    """Returns a file's name in small letters, without its folder and its ending."""
    return stem_of(name.rpartition("/")[2]).lower()
