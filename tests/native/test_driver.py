"""One small program over the C ABI has the same bits on aarch64 as here, and the address sanitizer finds nothing.

Two tests need a program of this machine (qemu-aarch64, a system compiler with sanitizers). Where it is missing they are
skipped, with the reason. test_fences.py and the trap build also check their claims about operands, on any machine.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.native.compiling import program, shipped_program, static_program, system_compiler
from tests.tiers import levels, thinned
from twostroke.backends.cpu import build

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "native" / "driver.cpp"
COMMON = ["-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-fno-exceptions", "-fno-rtti"]
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
COMPILER = system_compiler()
LEVEL_FLAGS = {
    "generic": [],
    "avx2": ["-march=x86-64-v3"],
    "avxvnni": ["-march=x86-64-v3", "-mavxvnni", "-DTS_LEVEL_AVX2"],
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
SANITIZED = thinned([level for level in levels() if level in LEVEL_FLAGS and level != "generic"], "sanitized", 1)
"""One level, which the seed chooses. The portable code takes minutes to compile with sanitizers, so only a daily run
does it. Fences and traps check it on each commit."""


def output(*command: str) -> bytes:
    result = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr.decode()[-3000:]
    return result.stdout


@pytest.mark.slow
@pytest.mark.daily
@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is not installed; the cross build itself is tested elsewhere")
def test_aarch64_says_the_same_bits() -> None:
    here, there = shipped_program(build.machine(), DRIVER, "generic"), static_program(DRIVER, "generic")
    assert struct.unpack_from("<H", there.read_bytes(), 18)[0] == 183
    expected = output(str(here))
    assert len(expected) > 40_000 and any(expected)
    assert output(str(QEMU), str(there)) == expected


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no system compiler with sanitizers (the package needs none)")
@pytest.mark.parametrize("level", SANITIZED)
def test_the_address_sanitizer_has_nothing_to_say(level: str) -> None:
    assert COMPILER is not None
    # Undefined behaviour is left to the trap build; both at once take twice as long to compile. So does -O1.
    checks = ("-fsanitize=address", "-g1", "-O0", "-w")
    flags = (*checks, *COMMON, *LEVEL_FLAGS[level], f"-DTS_LEVEL_{level.upper()}")
    assert len(output(str(program(COMPILER, level, DRIVER, flags, checks)))) > 40_000
