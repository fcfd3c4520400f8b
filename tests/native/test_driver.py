"""One small program over the C ABI: the same bits on aarch64 as here, and nothing for the address sanitizer to say.

Two tests need a program of this machine (qemu-aarch64, a system compiler with sanitizers) and are skipped, with the
reason, where it is missing; what they hold for operands is also held by test_fences.py and the trap build, anywhere.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "native" / "driver.cpp"
COMMON = ["-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-fno-exceptions", "-fno-rtti"]
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
COMPILER = shutil.which("g++") or shutil.which("clang++")
LEVEL_FLAGS = {
    "generic": [],
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4", "-mavx512vnni"],
    "amx": [
        "-march=x86-64-v4",
        "-mavx512vnni",
        "-mavx512bf16",
        "-mamx-tile",
        "-mamx-int8",
        "-mamx-bf16",
        "-DTS_LEVEL_AVX512",
    ],
}


def sources(*folders: str) -> list[str]:
    return [str(path) for folder in folders for path in sorted((ROOT / "csrc" / folder).glob("*.cpp"))]


def zig(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "ziglang", "c++", *arguments], check=True, capture_output=True, timeout=900)


def zig_program(machine: str, folder: Path) -> Path:
    """The driver, static, for one machine at the generic level."""
    program = folder / f"driver_{machine}"
    target = ["-target", f"{machine}-linux-musl"]
    flags = ["-O2", *COMMON, "-DTS_LEVEL_GENERIC", "-I", str(ROOT / "csrc/include")]

    def compile_one(source: str) -> str:
        made = str(folder / f"{machine}_{Path(source).stem}.o")
        zig(*target, *flags, "-c", source, "-o", made)
        return made

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, [*sources("generic", "x86", "arm"), str(DRIVER)]))
    # Without the C++ library, as in build.py: the kernels use its headers alone, and building it takes a minute.
    zig(*target, "-static", "-nostdlib++", *objects, "-o", str(program))
    return program


def output(*command: str) -> bytes:
    result = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr.decode()[-3000:]
    return result.stdout


@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is not installed; the cross build itself is tested elsewhere")
def test_aarch64_says_the_same_bits(tmp_path: Path) -> None:
    here, there = (zig_program(machine, tmp_path) for machine in ("x86_64", "aarch64"))
    assert struct.unpack_from("<H", there.read_bytes(), 18)[0] == 183
    expected = output(str(here))
    assert len(expected) > 40_000 and any(expected)
    assert output(str(QEMU), str(there)) == expected


@pytest.mark.skipif(COMPILER is None, reason="no system compiler with sanitizers (the package needs none)")
@pytest.mark.parametrize("level", LEVEL_FLAGS)
def test_the_address_sanitizer_has_nothing_to_say(level: str, tmp_path: Path) -> None:
    from twostroke.backends.cpu import available_levels

    if level not in available_levels():
        pytest.skip(f"this CPU does not run {level}")
    program = tmp_path / "driver"
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-w"]
    arguments = [*checks, *COMMON, *LEVEL_FLAGS[level], f"-DTS_LEVEL_{level.upper()}", "-I", str(ROOT / "csrc/include")]

    def compile_one(source: str) -> str:
        made = str(tmp_path / f"{Path(source).stem}.o")
        subprocess.run(
            [str(COMPILER), *arguments, "-c", source, "-o", made], check=True, capture_output=True, timeout=300
        )
        return made

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, [*sources("generic", "x86"), str(DRIVER)]))
    link = [str(COMPILER), *checks, *objects, "-o", str(program), "-lpthread"]
    subprocess.run(link, check=True, capture_output=True, timeout=300)
    assert len(output(str(program))) > 40_000
