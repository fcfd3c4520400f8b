"""The lines that `twostroke chat` reads in a terminal."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from twostroke.cli.chat import ChatText, _read_line


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a terminal gives, line after line: a text, or an exception that a key makes."""
    script: list[Any] = []

    def given(prompt: str = "") -> str:
        key = script.pop(0)
        if isinstance(key, str):
            return key
        raise key

    monkeypatch.setattr("builtins.input", given)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    return script


def test_the_first_ctrl_c_ends_nothing(typed: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """It may come a moment after the answer that it was meant to stop, and the conversation was lost."""
    typed += ["half of a \\", KeyboardInterrupt(), "whole"]
    assert _read_line(ChatText()) == "whole"
    assert "Ctrl-D" in capsys.readouterr().err


@pytest.mark.parametrize("keys", [[EOFError()], [KeyboardInterrupt(), KeyboardInterrupt()]])
def test_ctrl_d_and_a_second_ctrl_c_end(keys: list[BaseException], typed: list[Any]) -> None:
    typed += keys
    assert _read_line(ChatText()) is None


def test_without_a_terminal_ctrl_c_ends(typed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    typed += [KeyboardInterrupt(), "never read"]
    assert _read_line(ChatText()) is None
