"""A machine as the pool of threads meets it: which hardware threads it gets, how quickly each computes and reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.assembly.machine.topology import FULL_CAPACITY, Cpu, Topology


@dataclass(frozen=True, slots=True)
class CoreRates:
    """What the parts of a machine do in a second. All figures are of cores of full capacity.

    ops_per_s: one core, whether one or two of its hardware threads compute. thread_bytes_per_s: one hardware thread
    that reads alone on its core. node_bytes_per_s: all cores that read from one memory node. core_gain: how much more
    the hardware threads of a core read together than one of them.
    """

    ops_per_s: float
    thread_bytes_per_s: float
    node_bytes_per_s: float
    core_gain: float = 1.3


@dataclass(frozen=True, slots=True)
class PoolJob:
    """One job of the pool: equal tasks, of which each computes and reads so much."""

    tasks: int
    ops: float
    read_bytes: float


@dataclass(frozen=True, slots=True)
class PoolMachine:
    """A topology with rates. Weights lie in equal parts in the memory of all nodes."""

    topology: Topology
    rates: CoreRates

    def places(self, threads: int, kept_on: Sequence[int] = ()) -> tuple[Cpu, ...]:
        """Where the system runs so many threads: first threads of quick cores, evenly over the nodes. kept_on: numbers
        of the hardware threads to choose from; any where there are none.

        There are no more places than hardware threads: the pool begins no more.
        """
        seen: Counter[int] = Counter()
        order = []
        for core in self.topology.cores:
            for place, cpu in enumerate(core):
                if not kept_on or cpu.number in kept_on:
                    order.append((place, -cpu.capacity, seen[cpu.node], cpu.node, cpu.number, cpu))
            seen[core[0].node] += 1
        return tuple(each[-1] for each in sorted(order)[:threads])

    def speeds(self, working: Sequence[Cpu], job: PoolJob) -> list[float]:
        """Tasks a second of each of the hardware threads that work at the same time."""
        sharing = Counter((cpu.node, cpu.core) for cpu in working)
        found = [self._alone(cpu, sharing[cpu.node, cpu.core], job) for cpu in working]
        asked = sum(found) * job.read_bytes
        most = len(self.topology.nodes) * self.rates.node_bytes_per_s / self._slower
        return [speed * most / asked for speed in found] if asked > most else found

    def _alone(self, cpu: Cpu, sharing: int, job: PoolJob) -> float:
        """Without regard to other cores. sharing: the hardware threads of its core that work."""
        capacity = cpu.capacity / FULL_CAPACITY
        gain = self.rates.core_gain / sharing if sharing > 1 else 1.0
        computing = job.ops / (self.rates.ops_per_s * capacity / sharing)
        reading = job.read_bytes / (self.rates.thread_bytes_per_s * capacity * gain / self._slower)
        return 1 / max(computing, reading)

    @property
    def _slower(self) -> float:
        """How much slower memory is than a node's own, where all but one of N parts of it are far."""
        count = len(self.topology.nodes)
        return (1 + (count - 1) * self.topology.far) / count
