"""Peak memory of this process."""

from __future__ import annotations

from twostroke.system import here


def peak_bytes() -> int:
    """The largest resident size so far, mapped files included."""
    return here.peak_bytes()
