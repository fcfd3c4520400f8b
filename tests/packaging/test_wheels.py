"""Wheels for other systems: tags, contents and records, and kernels that are compiled for each system."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from pathlib import Path

import pytest
from tools import wheels

from tests.native.compiling import quickly
from tests.tiers import thinned
from twostroke.backends.cpu import build
from twostroke.backends.cpu.library import _SIGNATURES

INFO = "twostroke-1.2.dist-info"
FILES = {
    "twostroke/__init__.py": b"",
    f"{wheels.KERNELS}libtwostroke_generic.so": b"this machine's",
    f"{wheels.CUDA}libtwostroke_cuda.so": b"\x7fELF",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
    f"{INFO}/METADATA": b"Name: twostroke\n",
    f"{INFO}/RECORD": b"",
}
OF_THE_OTHERS = 6
"""Sources for every processor. They differ between systems only in the widths of C's types."""
LOOKS = {
    "aarch64-macos": (b"\xcf\xfa\xed\xfe", 4, 0x0100000C),  # Mach-O of 64 bits for arm64
    "x86_64-windows": (b"MZ", None, 0x8664),  # PE for x86-64
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A wheel as this machine builds it, with as few files as possible."""
    path = tmp_path / "twostroke-1.2-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("target", wheels.TAGS)
def test_a_wheel_has_its_targets_kernels_and_tags(target: str, base: Path, tmp_path: Path) -> None:
    library = build.library_in(Path(), "generic", target).name
    made = wheels.retagged(base, target, {library: b"its own"}, tmp_path / "dist")
    assert made.name == f"twostroke-1.2-py3-none-{wheels.TAGS[target]}.whl"
    with zipfile.ZipFile(made) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert [name for name in found if name.startswith(wheels.KERNELS)] == [wheels.KERNELS + library]
    assert found[wheels.KERNELS + library] == b"its own"
    assert any(name.startswith(wheels.CUDA) for name in found) == (target == "x86_64")
    lines = found[f"{INFO}/WHEEL"].decode().splitlines()
    tags = [line.removeprefix("Tag: py3-none-") for line in lines if line.startswith("Tag:")]
    assert tags == wheels.TAGS[target].split(".") and b"Root-Is-Purelib: false" in found[f"{INFO}/WHEEL"]
    rows = dict(line.rsplit(",", 2)[:2] for line in found[f"{INFO}/RECORD"].decode().splitlines())
    assert set(rows) == set(found)
    for name, content in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert rows[name] == ("" if name.endswith("RECORD") else f"sha256={digest}")


def test_two_builds_are_the_same_bytes(base: Path, tmp_path: Path) -> None:
    one, two = (wheels.retagged(base, "aarch64", {"a.so": b"1"}, tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_every_target_of_the_build_has_a_wheel() -> None:
    assert set(wheels.TAGS) == set(build.TRIPLES)
    for target, tag in wheels.TAGS.items():  # a tag promises no older system than the compiler was told
        oldest = "_".join(build.TRIPLES[target].split("gnu.")[-1].split("macos.")[-1].split("."))
        assert f"_{oldest}_" in tag or "windows" in target


@pytest.mark.daily
@pytest.mark.parametrize("target", LOOKS)
def test_kernels_are_compiled_for_other_systems(target: str, base: Path, tmp_path: Path) -> None:
    """The generic level as a whole, and a wheel of it. It is compiled here and runs on no such machine. The compiler
    makes the libraries of each system first, which takes minutes."""
    (made,) = build.build_all(tmp_path / "lib", target, levels=["generic"])
    magic, place, machine = LOOKS[target]
    content = made.read_bytes()
    at = struct.unpack_from("<I", content, 60)[0] + 4 if place is None else place
    assert content.startswith(magic) and struct.unpack_from("<H" if place is None else "<I", content, at)[0] == machine
    assert all(name.encode() in content for name in _SIGNATURES)
    wheel = wheels.retagged(base, target, {made.name: content}, tmp_path / "dist")
    assert zipfile.ZipFile(wheel).read(wheels.KERNELS + made.name) == content


@pytest.mark.slow
@pytest.mark.parametrize(("target", "level"), [("aarch64-macos", "dotprod"), ("x86_64-windows", "avx2")])
def test_the_sources_of_a_quick_level_are_compiled_for_other_systems(target: str, level: str) -> None:
    """The sources of the architecture and of the system, and a few of the others. A daily run compiles all of them."""
    own = [path for path in build.sources(target) if path.parent.name in ("arm", "x86", "system")]
    own += thinned([path for path in build.sources(target) if path not in own], target, OF_THE_OTHERS)
    flags = [(path, build.unit_flags(target, path, level, quickly())) for path in own]
    made = build.compile_all(build.shared_cache(), build.zig(), flags)
    assert len(made) == len(own) > 3
