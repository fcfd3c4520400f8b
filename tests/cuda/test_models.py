"""Whole programs on the emulated device: the logits of the tiny checkpoints have the digests that tests/bits records
for the CPU's level with fused multiply-add."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bits import digests
from tests.cuda.fake import SAME_BITS, build
from tests.cuda.logits import FORMATS, family_digests

QUICK = ("llama3-grouped",)
SOME = (
    *("llama-odd-sizes", "llama-biases", "mistral-window", "qwen2-window-upper-layers", "qwen3-head-norms", "gpt2"),
    *("gemma2-narrow-caps", "granite", "cohere2", "nemotron", "falcon-groups", "bloom", "opt"),
)
"""Of each op and shape one: biases, windows, norms of heads, caps, layer norms, slopes, gates of all kinds."""
LEVEL = SAME_BITS[build.cpu_build().machine()]


def check(family: str, folder: Path) -> None:
    recorded = digests.recorded()
    pairs = [pair for pair in digests.cases()[family] if pair[0] in FORMATS]
    found = dict(family_digests(family, pairs, 5, folder))
    expected = {name: recorded[name].get(LEVEL) for name in found}
    if None in expected.values():
        pytest.skip(f"no digests of level {LEVEL} are recorded")
    assert found == expected and len(found) >= 4


@pytest.mark.parametrize("family", QUICK)
def test_bits_are_those_of_the_cpu(family: str, tmp_path: Path) -> None:
    check(family, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", SOME)
def test_bits_of_other_families(family: str, tmp_path: Path) -> None:
    check(family, tmp_path)
