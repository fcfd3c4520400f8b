"""Metrics of the prompts' pages that the engine reads from the disk and writes to it; read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twostroke.engine.disk.contract import DiskCounts

_COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("twostroke_kv_disk_written_bytes", "Bytes of pages written to the disk.", "written_bytes"),
    ("twostroke_kv_disk_read_bytes", "Bytes of pages read from the disk.", "read_bytes"),
    ("twostroke_kv_disk_read_tokens", "Prompt tokens whose pages were read from the disk.", "read_tokens"),
    ("twostroke_kv_disk_damaged", "Files that could not be used, and were removed.", "damaged"),
    ("twostroke_kv_disk_refused", "Prompts on the disk that were computed, because reading was no sooner.", "refused"),
    ("twostroke_kv_disk_lost", "Pages that were not written: no room, no time, or no disk.", "lost"),
    ("twostroke_kv_disk_removed_files", "Files removed to make room for others.", "removed_files"),
)


class CountedDisk(Protocol):
    """A disk store that counts what it has written and read."""

    @property
    def counts(self) -> DiskCounts:
        """What the disk store has written, read, refused and lost since the start."""

    @property
    def rate(self) -> float:
        """The measured speed at which pages are read from the disk, in bytes a second."""


class DiskCollector(Collector):
    """Collects the disk's metrics. Registered when pages are kept on a disk."""

    def __init__(self, disk: CountedDisk) -> None:
        self._disk = disk

    def describe(self) -> list[Metric]:
        """Returns no metrics, because nothing is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of the disk."""
        counts = self._disk.counts
        for name, text, field in _COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(counts, field))
        text = "Bytes a second that pages are read with, checks included: measured, or assumed before the first."
        yield GaugeMetricFamily("twostroke_kv_disk_rate", text, value=self._disk.rate)
