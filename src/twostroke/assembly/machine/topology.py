"""The processors of this machine as Linux describes them: sockets, memory nodes, cores, hardware threads, speeds.

Only files below `root` are read, so that a test gives a tree of another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twostroke.assembly.machine.kernel_files import number_of, text_of
from twostroke.system.cpu_list import read_cpus

FULL_CAPACITY = 1024
"""What Linux calls the capacity of the quickest core of a machine."""
EFFICIENT_CAPACITY = 512
"""The capacity of Intel's efficiency cores where the kernel names them and gives no capacity."""
USEFUL_SHARE = 2 / 5
"""From this share of the largest capacity on, a core takes part. Simulated on hybrid machines, such cores make prompts
1.4 to 2 times as quick and leave decoding as it is; cores of a third make eight streams of a small model 13% slower."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """One hardware thread. core: the lowest number among the threads of its core. node: the memory node that is close.
    capacity: the speed, where 1024 is that of the quickest core.
    """

    number: int
    package: int
    core: int
    node: int
    capacity: int = FULL_CAPACITY


LOCAL_DISTANCE, USUAL_DISTANCE = 10, 20
"""What firmware says of a node's own memory, and of another node's where it says nothing (ACPI, table SLIT)."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The hardware threads that this process may use. quota: the cores that its control groups allow; None for all.
    far: the distance to the memory of another node, where 1 is that of a node to its own; the mean of all pairs."""

    cpus: tuple[Cpu, ...]
    quota: float | None = None
    far: float = USUAL_DISTANCE / LOCAL_DISTANCE

    @property
    def packages(self) -> int:
        """Sockets."""
        return len({cpu.package for cpu in self.cpus})

    @property
    def nodes(self) -> tuple[int, ...]:
        """Numbers of the memory nodes that have processors here."""
        return tuple(sorted({cpu.node for cpu in self.cpus}))

    @property
    def cores(self) -> tuple[tuple[Cpu, ...], ...]:
        """The hardware threads of each physical core, by node and number."""
        found: dict[tuple[int, int], list[Cpu]] = {}
        for cpu in self.cpus:
            found.setdefault((cpu.node, cpu.core), []).append(cpu)
        return tuple(tuple(found[key]) for key in sorted(found))

    @property
    def useful_cores(self) -> tuple[tuple[Cpu, ...], ...]:
        """The cores that are quick enough for the others to wait for them at the end of a product."""
        most = max((cpu.capacity for cpu in self.cpus), default=FULL_CAPACITY)
        return tuple(core for core in self.cores if core[0].capacity >= USEFUL_SHARE * most)

    def of_node(self, node: int) -> Topology:
        """What belongs to one memory node."""
        return Topology(tuple(cpu for cpu in self.cpus if cpu.node == node), self.quota, self.far)


def read_topology(allowed: Iterable[int] | None, quota: float | None, root: Path = Path("/")) -> Topology | None:
    """The topology of the CPUs `allowed`, or of all that are online; None where the system names none.

    quota: the cores that the control groups allow. A file that is missing means what it means on a plain machine: one
    socket, one node, cores of one thread and of full capacity.
    """
    folder = root / "sys/devices/system/cpu"
    wanted = sorted(allowed if allowed is not None else _list(folder / "online"))
    if not wanted:
        return None
    nodes = _nodes(root)
    slow = _list(root / "sys/devices/cpu_atom/cpus")
    cpus = tuple(_cpu(folder, number, nodes, slow) for number in wanted)
    return Topology(cpus, quota, _far(root, sorted({cpu.node for cpu in cpus})))


def _cpu(folder: Path, number: int, nodes: dict[int, int], slow: frozenset[int]) -> Cpu:
    own = folder / f"cpu{number}"
    siblings = _list(own / "topology/core_cpus_list") or _list(own / "topology/thread_siblings_list")
    capacity = number_of(own / "cpu_capacity")
    if capacity is None:
        capacity = EFFICIENT_CAPACITY if number in slow else FULL_CAPACITY
    package = number_of(own / "topology/physical_package_id")
    return Cpu(number, package or 0, min({*siblings, number}), nodes.get(number, 0), capacity)


def node_numbers(root: Path) -> list[int]:
    """The numbers of all memory nodes that are online, also of those without processors."""
    return _numbered(root / "sys/devices/system/node", "node")


def _nodes(root: Path) -> dict[int, int]:
    folder = root / "sys/devices/system/node"
    return {cpu: node for node in _numbered(folder, "node") for cpu in _list(folder / f"node{node}" / "cpulist")}


def _far(root: Path, used: Sequence[int]) -> float:
    """See Topology.far. A line of distances has a column for each node that is online, in order of their numbers."""
    folder = root / "sys/devices/system/node"
    online, found = node_numbers(root), []
    for node in used:
        words = text_of(folder / f"node{node}" / "distance").split()
        if len(words) != len(online) or not all(word.isdigit() for word in words):
            continue
        to = dict(zip(online, map(int, words), strict=True))
        found += [to[other] / to[node] for other in used if other != node and to[node] > 0]
    return max(1.0, sum(found) / len(found)) if found else USUAL_DISTANCE / LOCAL_DISTANCE


def _numbered(folder: Path, name: str) -> list[int]:
    """The numbers of the entries called `name` and a number."""
    try:
        entries = [path.name.removeprefix(name) for path in folder.iterdir() if path.name.startswith(name)]
    except OSError:
        return []
    return sorted(int(entry) for entry in entries if entry.isdigit())


def _list(path: Path) -> frozenset[int]:
    """The numbers in a file; none where it is missing."""
    return frozenset(read_cpus(text_of(path)))
