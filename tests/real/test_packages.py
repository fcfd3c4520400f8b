"""Fetching published weights with a scripted pip: unpacked files, refusals, messages, and processes that wait."""

from __future__ import annotations

import hashlib
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests import private_cache
from tests.real import packages
from tests.real.packages import GEMMA, MARK, MINILM, SMOL, TRL, NotHere, Published, Wheel, folder_of, not_run

CONTENT = b"first half, second half"
MADE_UP = Published(
    "made-up",
    (Wheel("made-up-one", "1.0", "a" * 64), Wheel("made-up-two", "1.0", "b" * 64)),
    r"made_up_\w+/data/(?P<to>(deep/)?[\w.]+)\.part\d",
    ("model.bin", hashlib.sha256(CONTENT).hexdigest()),
)
PIP = """
import pathlib, shutil, sys
words = sys.argv[1:]
here = pathlib.Path(__file__).parent
with open(here / "asked", "a") as file:
    file.write(" ".join(words) + "\\n")
(here / "requirements").write_text(pathlib.Path(words[words.index("--requirement") + 1]).read_text())
if (here / "fails").exists():
    sys.stderr.write("ERROR: one\\nERROR: No matching distribution found\\n")
    raise SystemExit(1)
for wheel in here.glob("*.whl"):
    shutil.copy(wheel, words[words.index("--dest") + 1])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the scripted pip. The cache and the shared files of a run are below it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(private_cache.RUN_FOLDER, str(tmp_path))
    (tmp_path / "pip.py").write_text(PIP)
    for name, part, text in (("one", 0, CONTENT[:11]), ("two", 1, CONTENT[11:])):
        with zipfile.ZipFile(tmp_path / f"made_up_{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"made_up_{name}/data/model.bin.part{part}", text)
            wheel.writestr(f"made_up_{name}/__init__.py", "raise SystemExit('nothing of a package is run')")
    with zipfile.ZipFile(tmp_path / "made_up_one-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("made_up_one/data/deep/small.json.part0", "{}")
    return tmp_path


def pip(place: Path) -> tuple[str, str]:
    return sys.executable, str(place / "pip.py")


def asked(place: Path) -> list[str]:
    return (place / "asked").read_text().splitlines()


def test_parts_are_joined_and_nothing_else_is_unpacked(place: Path) -> None:
    folder = folder_of(MADE_UP, pip(place))
    assert folder.is_relative_to(place / "cache")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {"model.bin": CONTENT, "deep/small.json": b"{}"}
    assert [path.name for path in folder.parent.iterdir() if "partial" in path.name] == []
    assert folder_of(MADE_UP, ("pip is asked once",)) == folder


def test_pip_is_told_versions_and_checksums_and_to_build_nothing(place: Path) -> None:
    folder_of(MADE_UP, pip(place))
    (line,) = asked(place)
    assert {"download", "--no-deps", "--require-hashes", "--only-binary"} <= set(line.split())
    lines = (place / "requirements").read_text().splitlines()
    digests = {"one": "a" * 64, "two": "b" * 64}
    assert lines == [f"made-up-{name}==1.0 --hash=sha256:{digest}" for name, digest in digests.items()]


def test_another_content_is_refused_and_not_kept(place: Path) -> None:
    wrong = replace(MADE_UP, checked=("model.bin", "0" * 64))
    with pytest.raises(NotHere, match=r"the checksum of model\.bin is [0-9a-f]{64}, and 0{64} was expected"):
        folder_of(wrong, pip(place))
    assert not wrong.path.exists()


def test_a_member_outside_of_the_folder_is_refused(place: Path) -> None:
    with zipfile.ZipFile(place / "made_up_one-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("made_up_one/data/../../../outside.part0", "x")
    with pytest.raises(NotHere, match="outside of its folder"):
        folder_of(replace(MADE_UP, members=r"made_up_\w+/data/(?P<to>.*)\.part\d"), pip(place))


def test_what_failed_is_said_and_not_tried_again_in_a_run(place: Path) -> None:
    (place / "fails").touch()
    for _ in range(2):
        with pytest.raises(NotHere, match="made-up-one==1.0, made-up-two==1.0: No matching distribution found"):
            folder_of(MADE_UP, pip(place))
    assert len(asked(place)) == 1


def test_without_pip_it_is_said(place: Path) -> None:
    with pytest.raises(NotHere, match="pip did not end"):
        folder_of(MADE_UP, (str(place / "no such program"),))


def test_those_who_ask_at_the_same_time_wait_for_the_first(place: Path) -> None:
    threads = [threading.Thread(target=folder_of, args=(MADE_UP, pip(place))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked(place)) == 1 and (MADE_UP.path / "model.bin").read_bytes() == CONTENT


def test_the_last_lines_name_each_reason_once_and_count_its_tests() -> None:
    reasons = [f"('file', 3, 'Skipped: {MARK}SmolLM2: no index')", "('file', 1, 'Skipped: no systemd')"]
    assert not_run([*reasons, reasons[0]]) == ["NOT RUN: 2 tests with published files. SmolLM2: no index"]
    assert not_run(reasons[1:]) == []


def test_all_packages_are_pinned() -> None:
    for model in (SMOL, GEMMA, MINILM, TRL):
        assert all(len(wheel.sha256) == 64 and wheel.version for wheel in model.wheels)
        assert len(model.checked[1]) == 64
    assert packages.PIP[0] == sys.executable
