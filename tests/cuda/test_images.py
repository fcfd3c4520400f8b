"""Kernels that are packed in archives, as wheels have them, are those of the files that were packed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cuda.emulator.fake import built_folder
from twostroke.backends.cuda import build
from twostroke.backends.cuda.images import HOPPER_HAS, images
from twostroke.backends.cuda.library import missing_parts
from twostroke.types.errors import BackendError


def test_archives_have_what_files_of_their_own_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of its own counts before an archive. Without lzma, the error names the missing module."""
    files = {path.name: path for path in built_folder().glob("kernels_*")}
    for chip in ("sm_80", "sm_89", "sm_90a", "sm_120"):
        files[f"kernels_{chip}.cubin"] = tmp_path / f"{chip}.cubin"
        files[f"kernels_{chip}.cubin"].write_bytes(b"\x7fELF" + chip.encode())
    folder = tmp_path / "lib"
    folder.mkdir()
    for name, content in build.packed(files).items():
        (folder / name).write_bytes(content)
    assert build.packed(files) == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {path.name for path in folder.iterdir()} == {
        "kernels_sm_80_sm_90a.ptx.tar.xz",
        *(f"kernels_{chip}.cubin.tar.xz" for chip in ("sm_80", "sm_89", "sm_90a", "sm_120")),
    }
    for capability in ((8, 0), (8, 9), (9, 0), (12, 0), (10, 0)):
        for image in images(folder, capability, 13000):
            assert image.read() == files[image.name].read_bytes() and image.has == HOPPER_HAS * ("sm_90a" in image.name)
    assert missing_parts(folder) == ["libtwostroke_cuda.so"]
    (folder / "kernels_sm_120.cubin").write_bytes(b"newer")
    assert images(folder, (12, 0), 13000)[0].read() == b"newer"
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(BackendError, match="no module lzma"):
        images(folder, (8, 0), 13000)[0].read()


@pytest.mark.parametrize("damage", ["cut", "empty", "other bytes", "a byte in the middle"])
def test_a_damaged_archive_is_told_by_name(tmp_path: Path, damage: str) -> None:
    kernels = tmp_path / "kernels_sm_90a.cubin"
    kernels.write_bytes(bytes(range(256)) * 64)
    (name, content), *_ = build.packed({kernels.name: kernels}).items()
    middle = bytearray(content)
    middle[len(middle) // 2] ^= 0xFF
    kinds = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "other bytes": b"x" * 100,
        "a byte in the middle": bytes(middle),
    }
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / name).write_bytes(kinds[damage])
    with pytest.raises(BackendError, match=f"{name} are damaged"):
        images(folder, (9, 0), 13000)[0].read()
