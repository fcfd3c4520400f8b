"""Keeps the progress of a soak: samples, a line from time to time, and figures on disk before the end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from .load import Tally
from .verdict import Sample

TOLD_S = 15.0


class Diary:
    """`with Diary(out) as diary`: the file next to `out` is removed when the end is reached without a fault."""

    SERIES = ("minute", "memory_mb", "least_fill")

    def __init__(self, out: Path | None) -> None:
        self._part = None if out is None else out.with_name(out.name + ".part")
        self._series: dict[str, list[float]] = {name: [] for name in self.SERIES}
        self._fills: dict[str, float] = {}
        self._full_minute: dict[str, float] = {}
        self._told_s = -TOLD_S

    def add(self, seconds: float, sample: Sample, fills: dict[str, float], tally: Tally) -> None:
        """Add a sample, taken `seconds` after the load began. When a line or a write is due, the progress is printed or
        written."""
        minute = seconds / 60
        self._fills = fills
        for name, fill in fills.items():
            if fill >= 1.0:
                self._full_minute.setdefault(name, round(minute, 2))
        figures = (minute, sample.memory_bytes / 1e6, min(fills.values(), default=0.0))
        for series, value in zip(self._series.values(), figures, strict=True):
            series.append(round(value, 4))
        if seconds - self._told_s < TOLD_S:
            return
        self._told_s = seconds
        least = min(fills, key=lambda name: fills[name], default="none")
        words = f"{minute:6.2f} min  {sample.memory_bytes / 1e6:8.2f} MB  {sample.descriptors} descriptors"
        words += f"  {sum(tally.sent.values())} sent, {tally.right} right, {tally.wrong} wrong"
        words += f", {sum(tally.refused.values())} refused, {sum(tally.unexpected.values())} unexpected"
        print(f"{words}  least full: {least} {fills.get(least, 0.0):.2f}", file=sys.stderr, flush=True)
        if self._part is not None:
            write_json(self._part, {"tally": tally.shown(), **self.shown()})

    def shown(self) -> dict[str, Any]:
        """Returns the progress for a report. histories_full_at_minute: the minute at which a history was first full,
        for those that were full at a sample."""
        return {"history_fill": self._fills, "histories_full_at_minute": self._full_minute, **self._series}

    def __enter__(self) -> Diary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None and self._part is not None:
            self._part.unlink(missing_ok=True)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write the file whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w") as file:
        file.write(json.dumps(value, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
