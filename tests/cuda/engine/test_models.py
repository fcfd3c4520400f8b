"""Whole programs on the emulated device. The logits of the tiny checkpoints have the digests that tests/bits records
for the CPU's level with fused multiply-add."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests.bits import digests
from tests.cuda.emulator.fake import SAME_BITS, build
from tests.cuda.engine.logits import family_digests
from tests.tiers import fewer, thinned
from twostroke.types.spec.formats import KVKind

QUICK, SLOW = fewer(4, quick=2), fewer(40, quick=1)
"""The numbers of families in a run: first with as many pairs of formats, then with one pair each."""
LEVEL = SAME_BITS[build.cpu_build().machine()]


def check(family: str, pairs: list[tuple[str, KVKind]], folder: Path) -> None:
    recorded = digests.recorded()
    found = dict(family_digests(family, pairs, 5, folder))
    expected = {name: recorded[name].get(LEVEL) for name in found}
    if None in expected.values():
        pytest.skip(f"no digests of level {LEVEL} are recorded")
    assert found == expected


FAMILIES = sorted(digests.cases())
CHOSEN = thinned(FAMILIES, "logits on a device", QUICK)
MORE = thinned(FAMILIES, "logits of more families on a device", SLOW)


@pytest.mark.parametrize("family", CHOSEN)
def test_bits_are_those_of_the_cpu(family: str, tmp_path: Path) -> None:
    check(family, thinned(digests.cases()[family], family, QUICK), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", MORE)
def test_bits_of_more_families(family: str, tmp_path: Path) -> None:
    """Each runs in one pair of formats, which the family's name chooses."""
    pairs = digests.cases()[family]
    check(family, [pairs[zlib.crc32(family.encode()) % len(pairs)]], tmp_path)
