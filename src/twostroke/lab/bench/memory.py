"""The peak memory of this process."""

from __future__ import annotations

from twostroke.system import here


def peak_bytes() -> int:
    """Returns the largest resident size of this process so far in bytes, mapped files included."""
    return here.peak_bytes()
