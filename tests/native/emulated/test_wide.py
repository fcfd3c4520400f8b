"""The emulated levels of AVX-512 stay complete; their grids run by hand (wide.py)."""

from __future__ import annotations

import re

import pytest

from tests.native.emulated import wide
from tests.native.emulated.avx512 import LEVEL
from twostroke.backends.cpu import build

INTRINSIC = re.compile(rb"\b_mm512_\w+")


def test_every_instruction_that_kernels_use_is_emulated() -> None:
    used = {
        name
        for unit in build.sources("x86_64")
        for text in build.with_headers(unit)
        for name in INTRINSIC.findall(text)
    }
    defined = set(re.findall(rb"^#define (_mm512_\w+)", LEVEL.header.read_bytes(), re.MULTILINE))
    assert used == defined


def test_words_that_are_not_understood_are_answered_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert [wide.main(arguments) for arguments in ([], ["avx2", "tests"], ["amx"])] == [2, 2, 2]
    assert "python -m tests.native.emulated.wide" in capsys.readouterr().err
