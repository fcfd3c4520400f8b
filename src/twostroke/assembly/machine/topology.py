"""The processors of this machine as Linux describes them: sockets, memory nodes, cores, hardware threads, speeds.

Only files below `root` are read, so that a test can give the files of another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twostroke.assembly.machine.kernel_files import number_of, text_of
from twostroke.system.cpu_list import read_cpus

FULL_CAPACITY = 1024
"""The capacity that Linux gives to the quickest core of a machine."""
EFFICIENT_CAPACITY = 512
"""The assumed capacity of Intel's efficiency cores, where the kernel lists them without a capacity."""
USEFUL_SHARE = 2 / 5
"""A core is used if it has at least this share of the largest capacity. In simulations of hybrid machines, such cores
made prompts 1.4 to 2 times as quick and left decoding unchanged. Cores with a third of the capacity made eight streams
of a small model 13% slower."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """One hardware thread. core: the lowest number among the hardware threads of its core. node: the memory node that
    is close. capacity: the speed, where the quickest core has 1024."""

    number: int
    package: int
    core: int
    node: int
    capacity: int = FULL_CAPACITY


LOCAL_DISTANCE, USUAL_DISTANCE = 10, 20
"""The distances that firmware gives to a node's own memory, and by default to another node's memory (ACPI, table SLIT).
"""


@dataclass(frozen=True, slots=True)
class Topology:
    """The hardware threads that this process may use. quota: the cores that its control groups allow; None for no
    limit.

    far: the mean distance from a NUMA node to the memory of another one, where the distance to its own memory is 1.
    """

    cpus: tuple[Cpu, ...]
    quota: float | None = None
    far: float = USUAL_DISTANCE / LOCAL_DISTANCE

    @property
    def packages(self) -> int:
        """The number of sockets."""
        return len({cpu.package for cpu in self.cpus})

    @property
    def nodes(self) -> tuple[int, ...]:
        """Numbers of the memory nodes that have usable processors."""
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
        """The cores that are quick enough to take part: at the end of each product, all cores wait for the slowest of
        these."""
        most = max((cpu.capacity for cpu in self.cpus), default=FULL_CAPACITY)
        return tuple(core for core in self.cores if core[0].capacity >= USEFUL_SHARE * most)

    def of_node(self, node: int) -> Topology:
        """Returns the part of the topology that belongs to one memory node."""
        return Topology(tuple(cpu for cpu in self.cpus if cpu.node == node), self.quota, self.far)


def read_topology(allowed: Iterable[int] | None, quota: float | None, root: Path = Path("/")) -> Topology | None:
    """Returns the topology of the CPUs `allowed`, or of all that are online; None where the system lists none.

    quota: the cores that the control groups allow. A missing file means the usual value: one socket, one node, cores of
    one thread and of full capacity.
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
    """Returns the numbers of all memory nodes that are online, including those without processors."""
    return _numbered(root / "sys/devices/system/node", "node")


def _nodes(root: Path) -> dict[int, int]:
    folder = root / "sys/devices/system/node"
    return {cpu: node for node in _numbered(folder, "node") for cpu in _list(folder / f"node{node}" / "cpulist")}


def _far(root: Path, used: Sequence[int]) -> float:
    """Returns the mean distance from a node to the memory of another node, where the distance to its own memory is 1.
    The file `distance` of a node has a column for each node that is online, in order of their numbers."""
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
    """Returns the numbers of the folder's entries that are named `name` followed by a number."""
    try:
        entries = [path.name.removeprefix(name) for path in folder.iterdir() if path.name.startswith(name)]
    except OSError:
        return []
    return sorted(int(entry) for entry in entries if entry.isdigit())


def _list(path: Path) -> frozenset[int]:
    """Returns the numbers in a file; none where the file is missing."""
    return frozenset(read_cpus(text_of(path)))
