"""What `cache gc` may remove: nothing that a start could still need, and nothing of which it knows too little."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from twostroke.types.errors import ConfigError
from twostroke.weights.gguf.unfold import NAME_FILE, UNFOLDED
from twostroke.weights.packed.blobs import Blob
from twostroke.weights.packed.cache_choice import PACKED
from twostroke.weights.packed.file import new_file
from twostroke.weights.packed.header import plan_file
from twostroke.weights.store.unused import (
    DAY_S,
    GONE,
    packed_waste,
    partial_waste,
    remove_waste,
    unfolded_waste,
)

NOW_S = 2_000_000_000.0
MONTH_S = 30 * DAY_S


def pack(cache: Path, name: str, origin: str, used_days_ago: float = 0.0) -> Path:
    """Writes a packed file, as a start does."""
    import numpy as np

    folder = cache / PACKED
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pack"
    plan = plan_file({"fingerprint": name, "formats": "f", "layout": "4"}, (Blob("a", 4096),))
    with new_file(path, plan, origin) as file:
        file.finish(np.zeros(plan.file_bytes, np.uint8))
    os.utime(path, (NOW_S - used_days_ago * DAY_S,) * 2)
    return path


def found(cache: Path, hub: Path) -> dict[str, str]:
    return {waste.path.stem: waste.why for waste in packed_waste(cache, hub, NOW_S, MONTH_S)}


def test_gone_unused_and_unusable_files_go_and_others_stay(tmp_path: Path) -> None:
    cache, hub, model = tmp_path / "c", tmp_path / "hub", tmp_path / "models" / "here"
    model.mkdir(parents=True)
    hub.mkdir()
    pack(cache, "stays", str(model), 29)
    pack(cache, "old", str(model), 31)
    pack(cache, "gone", str(tmp_path / "models" / "gone"))
    pack(cache, "nowhere", "")
    (cache / PACKED / "broken.pack").write_bytes(b"x" * 9000)
    why = found(cache, hub)
    assert set(why) == {"old", "gone", "broken"}
    assert why["gone"] == GONE and "31 days" in why["old"] and "cannot use" in why["broken"]


def test_a_disk_that_is_not_there_takes_no_packed_file_with_it(tmp_path: Path) -> None:
    disk = tmp_path / "mnt" / "disk"
    disk.mkdir(parents=True)
    pack(tmp_path / "c", "away", str(disk / "models" / "m"))
    assert found(tmp_path / "c", tmp_path / "hub") == {}


def test_a_long_path_in_the_hubs_cache_is_known_by_its_end(tmp_path: Path) -> None:
    hub = tmp_path / ("h" * 60) / "hub"
    tail = f"models--acme--{'t' * 60}/snapshots/{'a' * 40}/t-Q4_0.gguf"
    (hub / tail).parent.mkdir(parents=True)
    (hub / tail).write_bytes(b"GGUF")
    cache = tmp_path / "c"
    pack(cache, "long", str(hub / tail))
    assert found(cache, hub) == {}
    (hub / tail).unlink()
    (hub / tail).parent.rmdir()
    (hub / tail).parents[1].rmdir()
    (hub / tail).parents[2].rmdir()
    assert found(cache, hub) == {"long": GONE}
    assert found(cache, tmp_path / "other") == {}


def test_a_file_in_use_stays(tmp_path: Path) -> None:
    path = pack(tmp_path / "c", "used", str(tmp_path / "gone"))
    waste = packed_waste(tmp_path / "c", tmp_path, NOW_S, MONTH_S)
    assert [each.path for each in waste] == [path]
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert found(tmp_path / "c", tmp_path) == {}
        assert remove_waste(waste[0]) == 0 and path.is_file()
    assert remove_waste(waste[0]) == waste[0].num_bytes and not path.exists()
    assert remove_waste(waste[0]) == 0
    assert found(tmp_path / "c", tmp_path) == {}


def test_settings_of_a_gguf_file_that_is_gone(tmp_path: Path) -> None:
    folders = {name: tmp_path / UNFOLDED / name for name in ("one", "two")}
    here = tmp_path / "here.gguf"
    here.write_bytes(b"GGUF")
    for folder, named in zip(folders.values(), (here, tmp_path / "gone.gguf"), strict=True):
        folder.mkdir(parents=True)
        (folder / NAME_FILE).write_text(f'{{"file": "{named}"}}')
    waste = unfolded_waste(tmp_path, tmp_path / "hub")
    assert [each.path for each in waste] == [folders["two"]]
    assert remove_waste(waste[0]) > 0 and not folders["two"].exists() and folders["one"].exists()


def test_stopped_downloads_are_found_when_nobody_writes_them(tmp_path: Path) -> None:
    blobs = tmp_path / "models--acme--t" / "blobs"
    blobs.mkdir(parents=True)
    for name, days in (("a.twostroke-partial", 8), ("b.incomplete", 9), ("c.incomplete", 1), ("d", 100)):
        (blobs / name).write_bytes(b"x" * 10)
        os.utime(blobs / name, (NOW_S - days * DAY_S,) * 2)

    def names() -> list[str]:
        ends = (".incomplete", ".twostroke-partial")
        return [each.path.name for each in partial_waste(tmp_path, NOW_S, 7 * DAY_S, ends)]

    assert names() == ["a.twostroke-partial", "b.incomplete"]
    with (blobs / "a.twostroke-partial").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert names() == ["b.incomplete"]
    assert partial_waste(tmp_path / "none", NOW_S, 0, (".incomplete",)) == []


def test_what_may_not_be_deleted_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(tmp_path, "gone", str(tmp_path / "models" / "x"))
    (waste,) = packed_waste(tmp_path, tmp_path, NOW_S, MONTH_S)

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(ConfigError, match="cannot be deleted") as caught:
        remove_waste(waste)
    assert caught.value.why and caught.value.fix and waste.path.is_file()
