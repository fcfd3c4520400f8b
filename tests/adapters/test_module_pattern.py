"""Patterns of modules mean what they mean in `re`, and never take exponential time."""

from __future__ import annotations

import random
import re

import pytest

from twostroke.runner.adapters import module_pattern
from twostroke.runner.adapters.module_pattern import ModulePattern
from twostroke.types.errors import UnsupportedModel


def random_pattern(dice: random.Random, depth: int) -> str:
    kind = dice.randrange(8) if depth else 0
    if kind < 3:
        return dice.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\W", r"\.", r"\d", "[a-b1]"])
    inner = random_pattern(dice, depth - 1)
    if kind == 3:
        return inner + random_pattern(dice, depth - 1)
    if kind == 4:
        return f"(?:{inner}|{random_pattern(dice, depth - 1)})"
    if kind == 5:
        return f"(?:{inner})" + dice.choice(["*", "+", "?", "{2}", "{1,3}", "*?", "{0}"])
    return f"({inner})" if kind == 6 else dice.choice(["^", ""]) + inner + dice.choice(["$", ""])


def test_it_matches_what_re_matches() -> None:
    dice, found = random.Random(1), [0, 0]
    for _ in range(4000):
        pattern, name = random_pattern(dice, 4), "".join(dice.choice("ab.1") for _ in range(dice.randrange(6)))
        expected = re.fullmatch(pattern, name) is not None
        assert ModulePattern(pattern).matches(name) == expected, (pattern, name)
        found[expected] += 1
    assert min(found) > 300


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "((a?){500}){500}b", "(.*a){20}b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    assert not ModulePattern(pattern).matches("a" * 150)


def test_what_takes_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_pattern, "MAX_STEPS", 100)
    with pytest.raises(UnsupportedModel, match="too many steps"):
        ModulePattern("((a|b)*c?)*d").matches("ab" * 100)


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(?i)a", "a**", "(" * 3000, "a(", "x" * 5000, "[b-a]", r"\bq"])
def test_what_cannot_be_matched_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        ModulePattern(pattern)
