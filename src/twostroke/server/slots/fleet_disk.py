"""The disks of a front's replicas, as slots see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.distributed.fleet.router import FleetMember
from twostroke.engine.disk.contract import DiskCounts


class FleetDisk:
    """members: the replicas at this moment. What they tell is as old as their last frame; the frame with the end of a
    request tells of what that end gave them to write."""

    def __init__(self, members: Callable[[], Sequence[FleetMember]]) -> None:
        self._members = members

    @property
    def counts(self) -> DiskCounts:
        """What the present processes of all replicas have written and read."""
        loads = [member.load for member in self._members()]
        return DiskCounts(
            written_bytes=sum(load.disk_written_bytes for load in loads),
            read_bytes=sum(load.disk_read_bytes for load in loads),
        )

    @property
    def settled(self) -> bool:
        """Returns True once everything that waited to be written is on the disk."""
        return not any(member.load.disk_waits for member in self._members())
