"""The hub's cache on disk: what is listed, and exactly what a removal frees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twostroke.types.errors import ConfigError
from twostroke.weights.store.cached import cached_models, files_meant, removal_of, remove

COMMIT, OTHER = "a" * 40, "b" * 40


def put(cache: Path, repo: str, files: dict[str, int], commit: str = COMMIT, shared: bool = False) -> None:
    """Writes a repository as huggingface_hub lays it out. shared: whether its blobs are links to those of the whole
    cache."""
    folder = cache / ("models--" + repo.replace("/", "--"))
    for name, size in files.items():
        blob = folder / "blobs" / f"{size:064x}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        if shared and not blob.exists():
            place = cache / "blobs" / "00" / blob.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"x" * size)
            blob.symlink_to(os.path.relpath(place, blob.parent))
        elif not blob.exists():
            blob.write_bytes(b"x" * size)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)


def used(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file() and not path.is_symlink())


GGUFS = {"t-Q4_0.gguf": 100, "t-Q8_0-00001-of-00002.gguf": 200, "t-Q8_0-00002-of-00002.gguf": 201, "README.md": 1}


def test_each_quantization_is_a_model_and_a_split_one_is_one(tmp_path: Path) -> None:
    put(tmp_path, "acme/t", GGUFS)
    put(tmp_path, "acme/whole", {"config.json": 5, "model.safetensors": 50})
    found = {model.name: model.num_bytes for model in cached_models(tmp_path)}
    assert found == {"acme/t:Q4_0": 100, "acme/t:Q8_0": 401, "acme/whole": 55}
    assert cached_models(tmp_path / "nothing") == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_removal_frees_what_it_said(tmp_path: Path, shared: bool) -> None:
    put(tmp_path, "acme/t", GGUFS, shared=shared)
    names = list(GGUFS)
    removal = removal_of(tmp_path, "acme/t", files_meant(names, "q8_0"))
    assert removal is not None and removal.num_bytes == 401 and removal.folder is None
    before = used(tmp_path)
    remove(removal)
    assert before - used(tmp_path) == 401
    assert [model.name for model in cached_models(tmp_path)] == ["acme/t:Q4_0"]
    rest = removal_of(tmp_path, "acme/t")
    assert rest is not None
    before = used(tmp_path)
    remove(rest)
    assert before - used(tmp_path) - len(COMMIT) == rest.num_bytes == 101  # refs/main goes with the folder
    assert cached_models(tmp_path) == [] and removal_of(tmp_path, "acme/t") is None


def test_a_blob_of_two_revisions_or_two_repositories_stays(tmp_path: Path) -> None:
    put(tmp_path, "acme/one", {"a.gguf": 100}, shared=True)
    folder = tmp_path / "models--acme--two" / "blobs"
    folder.mkdir(parents=True)
    (folder / f"{100:064x}").symlink_to(os.path.relpath(tmp_path / "blobs" / "00" / f"{100:064x}", folder))
    removal = removal_of(tmp_path, "acme/one")
    assert removal is not None and removal.num_bytes == 0
    remove(removal)
    assert (folder / f"{100:064x}").read_bytes() == b"x" * 100
    put(tmp_path, "acme/old", {"a.gguf": 7})
    put(tmp_path, "acme/old", {"b.gguf": 7}, commit=OTHER)
    older = removal_of(tmp_path, "acme/old", ["a.gguf"])
    assert older is not None and older.num_bytes == 0 and older.folder is None


def test_a_download_that_stopped_is_shown_and_can_be_removed(tmp_path: Path) -> None:
    blobs = tmp_path / "models--acme--cut" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "f.twostroke-partial").write_bytes(b"x" * 30)
    (model,) = cached_models(tmp_path)
    assert (model.name, model.whole, model.num_bytes) == ("acme/cut", False, 30)
    removal = removal_of(tmp_path, "acme/cut")
    assert removal is not None and removal.num_bytes == 30
    remove(removal)
    assert used(tmp_path) == 0


def test_a_folder_that_may_not_be_written_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "acme/t", GGUFS)
    removal = removal_of(tmp_path, "acme/t")
    assert removal is not None

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(ConfigError, match="cannot be deleted") as caught:
        remove(removal)
    assert caught.value.why and caught.value.fix and len(cached_models(tmp_path)) == 2
