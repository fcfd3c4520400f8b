"""Counts of what a front's replicas have written to their disks and read from them. The routes of llama.cpp's slots
report them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.distributed.fleet.router import FleetMember
from twostroke.engine.disk.contract import DiskCounts


class FleetDisk:
    """The disks of all replicas of a front, as one. Satisfies SlotDisk. members: returns the present replicas.

    The counts of a replica are as old as its last report. A replica queues a request's pages for the disk before it
    reports the request's end, so that report already counts the pages as waiting.
    """

    def __init__(self, members: Callable[[], Sequence[FleetMember]]) -> None:
        self._members = members

    @property
    def counts(self) -> DiskCounts:
        """The bytes that the present processes of all replicas have written and read."""
        loads = [member.load for member in self._members()]
        return DiskCounts(
            written_bytes=sum(load.disk_written_bytes for load in loads),
            read_bytes=sum(load.disk_read_bytes for load in loads),
        )

    @property
    def settled(self) -> bool:
        """True when no replica has pages that wait to be written."""
        return not any(member.load.disk_waits for member in self._members())
