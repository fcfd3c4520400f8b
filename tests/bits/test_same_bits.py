"""Logits have the recorded bits, so a change of arithmetic is a visible change of tests/bits/digests.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bits import digests
from tests.bits.digests import WHOLE, cases, changes, family_digests, name_of, recorded
from tests.native.emulated import tiles
from tests.tiers import TIER, levels, thinned

REMEDY = "If the change is meant: python -m tests.bits.digests --write, and say in the commit why."


@pytest.mark.parametrize("family", cases())
def test_logits_have_the_bits_that_are_written_down(family: str, tmp_path: Path) -> None:
    pairs = cases()[family]
    if TIER.quick or family not in WHOLE:
        pairs = thinned(pairs, family, most=1)
    known = recorded()
    names = [name_of(family, *pair) for pair in pairs]
    asked = tuple(level for level in levels() if all(level in known.get(name, {}) for name in names))
    if not asked:
        pytest.skip(f"no digests of {family} at {', '.join(levels())} yet: python -m tests.bits.digests --write")
    found = family_digests(family, pairs, asked, tmp_path)
    before = {name: {level: known[name][level] for level in asked} for name in found}
    said = list(changes(before, found))
    assert not said, "\n".join([*said, REMEDY])


REGISTERS = "amx"
"""A level that few machines run. Its digests come from one of them, so they also test the emulator."""
MOST_EMULATED = 6


def unlike_vectors() -> list[str]:
    """Cases whose bits only matrix registers give: bf16 attention, whose sums have the registers' order."""
    found = [(name, levels) for name, levels in recorded().items() if REGISTERS in levels]
    return [name for name, levels in found if levels[REGISTERS] != levels["avx512"]][:MOST_EMULATED]


@pytest.mark.parametrize("name", unlike_vectors())
def test_emulated_matrix_registers_say_the_bits_of_real_ones(name: str, tmp_path: Path) -> None:
    level = tiles.load()
    [(family, pair)] = [
        (family, pair) for family, pairs in cases().items() for pair in pairs if name_of(family, *pair) == name
    ]
    found = family_digests(family, [pair], (level,), tmp_path)
    assert found[name][level] == recorded()[name][REGISTERS], REMEDY


@pytest.mark.slow
def test_every_family_is_written_down_and_nothing_else() -> None:
    assert set(recorded()) == {name_of(family, *pair) for family, pairs in cases().items() for pair in pairs}, REMEDY


def test_a_new_line_of_the_file_adds_no_level_to_the_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "available_levels", lambda: ["generic", "avx2", "avxvnni", "avx512"])
    in_every_line = set.intersection(*map(set, recorded().values()))
    assert set(digests.levels_here()) == {"generic", "avx2", "avx512"} <= in_every_line


def test_changes_name_what_differs() -> None:
    before = {"a": {"avx2": "1", "generic": "2"}, "gone": {"avx2": "1"}}
    now = {"a": {"avx2": "1", "generic": "3", "avx512": "1"}, "b": {"avx2": "1"}}
    assert list(changes(before, now)) == [
        "changed: a at level generic: 2 -> 3",
        "new level: a at avx512",
        "new: b",
        "gone: gone",
    ]
