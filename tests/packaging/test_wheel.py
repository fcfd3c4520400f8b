"""The wheel is built, inspected, installed in an environment of its own, and asked for a GPU that is not there.

It is built from a copy of the working tree, because other tests run the libraries of the tree meanwhile. A daily run
compiles every level and all PTX, and assembles its machine code. On each commit a wheel has the levels that
this machine runs, which the installation has compiled from the same sources. For every chip it has the PTX that
tests/cuda/test_compile.py inspects, also in place of machine code.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cuda.assembled import AT_COMMITS
from tests.tiers import TIER
from twostroke.backends.cpu.build import LEVELS, machine, runnable_levels
from twostroke.backends.cuda.build import CHIPS, assembler
from twostroke.backends.cuda.images import Image, images, images_by_name

ROOT = Path(__file__).resolve().parents[2]
CUDA = "twostroke/backends/cuda/lib/"
MOST_BYTES = 22 * 1000 * 1000
BUILT = {
    "    module.build_all(folder, target, levels=levels)\n": (
        "    module.build_all(folder, target, levels=module.runnable_levels())\n"
    ),
    "        cuda.build_all(machine_code=cuda.chips_of_wheels(), is_packed=True)\n": (
        "        compile_ptx = cuda.compile_ptx\n"
        f'        cuda.compile_ptx = lambda chip: compile_ptx("{AT_COMMITS}")\n'
        "        cuda.assemble = cuda.compile_ptx\n"
        "        cuda.build_all(machine_code=cuda.WHEEL_CHIPS, is_packed=True)\n"
    ),
}
"""The lines of setup.py that compile, and what they compile on each commit."""
TIMEOUT_S = 600

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TWOSTROKE"))}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, timeout=TIMEOUT_S)


def copied_tree(folder: Path) -> Path:
    """A copy of the files of the working tree that a build needs, as .dockerignore lists them, without libraries that
    were built there."""
    lines = (ROOT / ".dockerignore").read_text().split()
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "lib")
    for name in (line[1:] for line in lines if line.startswith("!")):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=left)
        else:
            shutil.copy(ROOT / name, folder / name)
    if not TIER.daily:
        setup = (ROOT / "setup.py").read_text()
        for whole, less in BUILT.items():
            assert setup.count(whole) == 1
            setup = setup.replace(whole, less)
        (folder / "setup.py").write_text(setup)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that the installed compiler builds from the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-q")
    tree = copied_tree(tmp_path_factory.mktemp("tree"))
    made = run(sys.executable, "-m", "pip", "wheel", tree, *options, "-w", folder, cwd=folder)
    assert made.returncode == 0, made.stderr
    (found,) = folder.glob("twostroke-*.whl")
    return found


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed program, with its dependencies from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    into = ("--python", folder / "bin/python", "install")
    options = ("--no-deps", "--no-index", "--no-compile", "-q")
    installed = run(sys.executable, "-m", "pip", *into, *options, wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    (packages,) = folder.glob("lib/python3*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages") and Path(path).is_dir()]
    (packages / "shared.pth").write_text("\n".join(dict.fromkeys([sysconfig.get_path("purelib"), *shared])) + "\n")
    where = run(folder / "bin/python", "-c", "import twostroke; print(twostroke.__file__)", cwd=folder)
    assert where.stdout.startswith(str(folder)), where.stdout + where.stderr
    return folder / "bin/twostroke"


def images_of(folder: Path, name: str) -> list[Image]:
    """The image of this name as a device finds it, if the folder has it."""
    there = images_by_name(folder)
    return [Image(name, there[name], 0)] if name in there else []


def test_it_holds_the_kernels_and_is_small(wheel: Path, tmp_path: Path) -> None:
    assert "-py3-none-" in wheel.name
    assert wheel.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path, [name for name in names if name.startswith(CUDA)])
    levels = LEVELS[machine()] if TIER.daily else runnable_levels()
    expected = {f"twostroke/backends/cpu/lib/libtwostroke_{level}.so" for level in levels}
    assert expected | {"twostroke/backends/cuda/lib/libtwostroke_cuda.so"} <= set(names)
    for chip in CHIPS:
        (text,) = (each.read().decode() for each in images_of(tmp_path / CUDA, f"kernels_{chip}.ptx"))
        target = chip if TIER.daily else AT_COMMITS
        assert f".target {target}" in text and "ts_kernel_sample_choose" in text
    assert not [name for name in names if name.startswith(("tests/", "tools/", "csrc/"))]


def test_chips_find_machine_code_first(wheel: Path, tmp_path: Path) -> None:
    """A driver need not compile anything at the first start. PTX comes next, for a driver that refuses the code, and
    for chips without code."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if name.startswith(CUDA)])
    if TIER.daily and assembler() is None:
        pytest.skip("not assembled: pip install nvidia-cuda-nvcc==13.0.88 (of the test extra) brings ptxas")
    for capability, chip in (
        *(((8, 0), "sm_80"), ((8, 6), "sm_80"), ((8, 9), "sm_80"), ((9, 0), "sm_90a")),
        *(((12, 0), "sm_120"), ((12, 1), "sm_120")),
    ):
        first, *others = images(tmp_path / CUDA, capability, 13000)
        assert first.name == f"kernels_{chip}.cubin" and others[-1].name == "kernels_sm_80.ptx"
        start = b"\x7fELF" if TIER.daily else b"//"
        assert first.read().startswith(start) and others[-1].read().startswith(b"//")
    assert [each.name for each in images(tmp_path / CUDA, (10, 0), 13000)] == ["kernels_sm_80.ptx"]


def test_a_gpu_needs_no_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert needed and not re.search("torch|nvidia|cuda|triton|cupy|ziglang", "\n".join(needed).lower())


def test_without_a_driver_it_says_what_is_missing(program: Path, tmp_path: Path) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    except OSError:
        pass
    refused = run(program, "serve", "spark", "--device", "cuda", "--port", "0", cwd=tmp_path)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    for words in ("--device cuda cannot be used", "There is no CUDA driver here", "libcuda.so.1", "--device cpu"):
        assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    settled = run(program, "config", "spark", "--device", "auto", cwd=tmp_path)
    assert settled.returncode == 0 and "no CUDA driver" in settled.stdout
