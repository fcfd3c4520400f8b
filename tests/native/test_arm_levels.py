"""The aarch64 levels under emulation, compared with the generic level and each other: every kernel over odd sizes.

The levels promise this: whole numbers, roundings and copies have the same bits at every level. Sums of floats have the
same bits at every vector level, also those of x86, because all of them fuse a multiplication and the addition after it.
The generic level does not fuse them and is close. On each commit the highest level is compared with AVX2; a daily run
has all. Where qemu-aarch64 is missing the tests are skipped, with the reason, like test_driver.py. Nothing here
measures how fast a level is.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.native.compiling import arm_levels, shipped_program, static_program
from tests.tiers import rest_daily
from twostroke.backends.cpu import available_levels, build

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ROOT / "tests" / "native" / "sweep.cpp"
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
PROCESSORS = {"generic": "cortex-a53", "neon": "cortex-a53", "dotprod": "neoverse-n1", "i8mm": "max"}
"""The emulated processor of each level: ARMv8.0 alone, ARMv8.2 with dot products, and all extensions. A newer
instruction would be SIGILL."""
LEVEL_BITS = {"cortex-a53": 3, "neoverse-n1": 7, "max": 15}
STACK_MOVES = ("str", "stp", "stur", "ldr", "ldp", "ldur")

TILES = [
    ("neon", "linear_neon", "sadalp", 200),
    ("dotprod", "linear_neon", "sdot", 200),
    ("dotprod", "linear_int4_neon", "sdot", 150),
    ("i8mm", "linear_i8mm", "usmmla", 70),
]
"""The level, the source, the instruction of its tiles, and the least number of them."""

pytestmark = pytest.mark.slow
Records = dict[str, bytes]


def records(*command: str) -> Records:
    """The records that a sweep prints, by name."""
    result = subprocess.run(command, capture_output=True, timeout=600, check=False)
    assert result.returncode == 0, (result.returncode, result.stderr.decode()[-3000:])
    found: Records = {}
    at = 0
    while at < len(result.stdout):
        name = result.stdout[at : at + 64].rstrip(b"\0").decode()
        (size,) = struct.unpack_from("<q", result.stdout, at + 64)
        assert name not in found
        found[name] = result.stdout[at + 72 : at + 72 + size]
        at += 72 + size
    return found


@cache
def said(level: str) -> Records:
    """The records of one level of aarch64."""
    if QEMU is None:
        pytest.skip("qemu-aarch64 is not installed; the cross build itself is tested elsewhere")
    return records(QEMU, "-cpu", PROCESSORS[level], str(static_program(SWEEP, level)))


WHOLE_KEYS = ("kv2", "kv3")
"""Attention over int8 and int4, where a weight with fused sums may be rounded the other way."""


def same_bits_everywhere(name: str) -> bool:
    """Whether there is no fused multiply-add. One group's integers are scaled once; other ops round and copy."""
    if name.endswith(("embed", "pack data", "pack scales", "pack blocks", "write", "rope", "gather")):
        return True
    return name.endswith("linear") and "groups1 " in name


def test_each_program_knows_its_level_and_its_processor() -> None:
    for level in arm_levels():
        found = said(level)
        assert found["level"] == level.encode()
        assert found["levels"] == struct.pack("<i", LEVEL_BITS[PROCESSORS[level]])
        assert len(found) > 500 and sum(map(len, found.values())) > 2_000_000


@pytest.mark.daily
@pytest.mark.parametrize("level", [level for level in build.LEVELS["aarch64"] if level != "generic"])
def test_a_vector_level_agrees_with_the_generic_one(level: str) -> None:
    exact, found, generic = 0, said(level), said("generic")
    assert found.keys() == generic.keys()
    for name, expected in generic.items():
        if name in ("level", "levels"):
            continue
        if same_bits_everywhere(name):
            assert found[name] == expected, name
            exact += 1
            continue
        here, there = (np.frombuffer(content, np.float32) for content in (expected, found[name]))
        if name.startswith("nan"):
            np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-5, err_msg=name)
            continue
        assert np.isfinite(here).all(), name
        share = 3e-5 if name.startswith(WHOLE_KEYS) else 3e-6
        np.testing.assert_allclose(there, here, rtol=0, atol=share * float(np.abs(here).max()) + 1e-6, err_msg=name)
    assert exact > 200


@pytest.mark.daily
def test_the_vector_levels_say_the_same_bits() -> None:
    """This holds also where the sums are fused."""
    first, *others = (level for level in build.LEVELS["aarch64"] if level != "generic")
    for level in others:
        for name, expected in said(first).items():
            assert name in ("level", "levels") or said(level)[name] == expected, (level, name)


@pytest.mark.skipif("avx2" not in available_levels(), reason="this CPU does not run avx2")
def test_the_highest_level_says_the_same_bits_as_avx2() -> None:
    here, there = records(str(shipped_program("x86_64", SWEEP, "avx2"))), said(arm_levels()[-1])
    for name, expected in here.items():
        if name in ("level", "levels"):
            continue
        if name.startswith("nan"):  # x86 and Arm write different NaN
            np.testing.assert_array_equal(*(np.frombuffer(each, np.float32) for each in (there[name], expected)))
            continue
        assert there[name] == expected, name


@pytest.mark.parametrize(
    ("level", "source", "instruction", "least"),
    rest_daily(TILES, [TILES[0], TILES[-1]]),
)
def test_the_sums_stay_in_registers(level: str, source: str, instruction: str, least: int) -> None:
    """The compiled tiles contain the level's own instruction, and store no vector on the stack."""
    flags = (*build.FLAGS, *build.RELEASE, "-target", build.TRIPLES["aarch64"], *build.level_flags("aarch64", level))
    job = (ROOT / f"csrc/arm/{source}.cpp", (*flags, "-Wno-unused-command-line-argument"))
    [listing] = build.compile_all(build.shared_cache(), build.zig(), [job], ".s")
    lines = [line.split() for line in listing.read_text().splitlines() if line.startswith("\t")]
    assert sum(words[0] == instruction for words in lines) >= least
    spills = [words for words in lines if words[0] in STACK_MOVES and words[1][0] == "q" and "[sp" in " ".join(words)]
    assert spills == []
