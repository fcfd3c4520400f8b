"""A machine as the pool of threads sees it: the hardware threads that the pool gets, and how fast each computes and
reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.assembly.machine.topology import FULL_CAPACITY, Cpu, Topology


@dataclass(frozen=True, slots=True)
class CoreRates:
    """What the parts of a machine do in a second. All figures hold for cores of full capacity.

    ops_per_s: one core, whether one or two of its hardware threads compute. thread_bytes_per_s: one hardware thread
    that reads alone on its core. node_bytes_per_s: all cores that read from one memory node. core_gain: the bytes that
    the hardware threads of one core read together, divided by those that one of them reads alone.
    """

    ops_per_s: float
    thread_bytes_per_s: float
    node_bytes_per_s: float
    core_gain: float = 1.3


@dataclass(frozen=True, slots=True)
class PoolJob:
    """One job of the pool, made of `tasks` equal tasks. ops, read_bytes: what each task computes and reads."""

    tasks: int
    ops: float
    read_bytes: float


@dataclass(frozen=True, slots=True)
class PoolMachine:
    """A topology with rates. Weights lie in equal parts in the memory of all nodes."""

    topology: Topology
    rates: CoreRates

    def places(self, threads: int, kept_on: Sequence[int] = ()) -> tuple[Cpu, ...]:
        """Returns the hardware threads on which the system runs `threads` threads. The first hardware thread of each
        core comes before the second, fast cores come first, and the nodes are used evenly. kept_on: numbers of the
        hardware threads to choose from; empty for any.

        There are no more places than hardware threads, because the pool starts no more threads.
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
        """Returns the tasks a second of each of the hardware threads that work at the same time."""
        sharing = Counter((cpu.node, cpu.core) for cpu in working)
        found = [self._alone(cpu, sharing[cpu.node, cpu.core], job) for cpu in working]
        asked = sum(found) * job.read_bytes
        most = len(self.topology.nodes) * self.rates.node_bytes_per_s / self._slower
        return [speed * most / asked for speed in found] if asked > most else found

    def _alone(self, cpu: Cpu, sharing: int, job: PoolJob) -> float:
        """Returns the tasks a second of a hardware thread, without regard to other cores. sharing: how many hardware
        threads of its core work."""
        capacity = cpu.capacity / FULL_CAPACITY
        gain = self.rates.core_gain / sharing if sharing > 1 else 1.0
        computing = job.ops / (self.rates.ops_per_s * capacity / sharing)
        reading = job.read_bytes / (self.rates.thread_bytes_per_s * capacity * gain / self._slower)
        return 1 / max(computing, reading)

    @property
    def _slower(self) -> float:
        """The average time of a memory access, divided by that of an access to the node's own memory. The memory lies
        on N nodes in equal parts, of which N - 1 are far."""
        count = len(self.topology.nodes)
        return (1 + (count - 1) * self.topology.far) / count
