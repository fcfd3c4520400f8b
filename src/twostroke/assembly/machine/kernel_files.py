"""Reads the small files by which the kernel describes a machine. A missing file reads as empty."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """Returns the text of the file; "" where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def number_of(path: Path) -> int | None:
    """Returns the number in the file; None where it contains none."""
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None
