"""Progress of work that is counted in steps, and not in bytes."""

from __future__ import annotations

import sys

import pytest

from twostroke.cli.shared.progress import STEPS, progress_bar


def test_steps_are_told_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """`quantize` compared for two minutes without a line, because 62 stages were taken for 62 bytes."""
    with progress_bar("compare", STEPS) as progress:
        for done in range(63):
            progress(done, 62, "stages")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and lines[-1] == "compare: 62 of 62 (stages)"


def test_a_bar_of_steps_counts_no_bytes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("compare", STEPS) as progress:
        progress(3, 62, "stages")
    assert "bytes" not in capsys.readouterr().err
