"""How many threads compute and on which hardware threads they stay, with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twostroke.assembly.machine.topology import Topology
from twostroke.system.cpu_list import ANY, write_cpus

MOST_THREADS = 256
"""The native pool holds no more."""
WORTH_A_THREAD = 1.25
"""A part of a core in a quota gets a thread of its own from this gain on. All threads then stand still for a part of
each period. On two cores a quota of 1.5 did 1.1 to 1.25 times as much with two threads as with one, and a quota of 1.1
did 0.8 to 1.0 times as much."""


@dataclass(frozen=True, slots=True)
class CoreChoice:
    """cpus: the hardware threads that the threads are kept on; empty where the system may place them. nodes: the memory
    nodes that they belong to. reason: why this many.
    """

    threads: int
    reason: str
    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = (0,)

    def kept_on(self, threads: int) -> tuple[str, str]:
        """The hardware threads on which so many threads are kept, as a list or ANY, and why."""
        if not self.cpus:
            return ANY, "the system places threads"
        if threads > len(self.cpus):
            return ANY, f"there are more threads than the {len(self.cpus)} cores that were chosen"
        return write_cpus(self.cpus), "hardware threads of the cores that were chosen, one of each"


def plain_choice(cores: int) -> CoreChoice:
    """Where the system describes no topology."""
    return CoreChoice(max(1, min(cores, MOST_THREADS)), "cores this process may use")


def fast_choice(cores: int) -> CoreChoice:
    """Where the system tells the number of its performance cores and no more."""
    return CoreChoice(max(1, min(cores, MOST_THREADS)), "performance cores of this machine")


def choose_cores(topology: Topology) -> CoreChoice:
    """One thread for each physical core that is quick enough, as far as the quota of the control group reaches.

    The second thread of a core shares its arithmetic, and a very slow core holds up each step that waits for it. A
    single core has all its hardware threads at work, because one of them alone cannot keep enough reads under way.
    Threads are kept on their cores only where the choice leaves hardware threads out. Under a smaller quota the system
    moves threads to where it has time for them.
    """
    cores = topology.useful_cores
    alone = len(cores) == 1
    chosen = tuple(cpu.number for cpu in cores[0]) if alone else tuple(core[0].number for core in cores)
    count, words = min(len(chosen), MOST_THREADS), _words(topology, len(chosen), alone)
    if topology.quota is not None and topology.quota < count:
        reason = f"the control group allows {topology.quota:g} of {len(topology.cores)} cores"
        return CoreChoice(_under_quota(topology.quota), reason, (), topology.nodes)
    pinned = () if len(chosen) == len(topology.cpus) else chosen[:count]
    return CoreChoice(count, words, pinned, topology.nodes)


def _under_quota(quota: float) -> int:
    """The whole cores of a quota, and one more thread where the rest is worth it."""
    whole = max(1, math.floor(quota))
    return whole + 1 if quota >= WORTH_A_THREAD * whole else whole


def share_choice(topology: Topology | None, whole: CoreChoice, place: int, count: int) -> CoreChoice:
    """What the process number `place` of `count` has. Processes that are as many as the memory nodes, or a multiple,
    have a node each, or a part of one, so that what they read is close."""
    threads = max(1, whole.threads // count)
    nodes = () if topology is None else topology.nodes
    if topology is None or len(nodes) < 2 or count % len(nodes) or topology.quota is not None:
        return CoreChoice(threads, f"{whole.reason}, divided among {count} processes", (), whole.nodes)
    each = count // len(nodes)
    node = nodes[place // each]
    own = choose_cores(topology.of_node(node))
    cpus = own.cpus or tuple(cpu.number for cpu in topology.of_node(node).cpus)
    size = max(1, len(cpus) // each)
    first = (place % each) * size
    reason = f"the cores of memory node {node}" + (f", divided by {each}" if each > 1 else "")
    return CoreChoice(max(1, own.threads // each), reason, cpus[first : first + size], (node,))


def close_cpus(topology: Topology | None, place: int, count: int) -> tuple[int, ...]:
    """The hardware threads on which the process number `place` of `count` runs as a whole: those of its memory node.
    None, which means any, where the processes do not divide evenly among the nodes."""
    nodes = () if topology is None else topology.nodes
    if topology is None or len(nodes) < 2 or count % len(nodes):
        return ()
    return tuple(cpu.number for cpu in topology.of_node(nodes[place // (count // len(nodes))]).cpus)


def _words(topology: Topology, threads: int, alone: bool) -> str:
    """ "32 physical cores of 2 memory nodes, not their 32 further hardware threads" and the like."""
    cores, useful = len(topology.cores), len(topology.useful_cores)
    if threads == len(topology.cpus) and not alone:
        return "cores this process may use" + f", of {len(topology.nodes)} memory nodes" * (len(topology.nodes) > 1)
    if alone:
        return f"{threads} hardware threads of one core" if threads > 1 else "one core"
    left_out = [f"not their {len(topology.cpus) - cores} further hardware threads"] * (len(topology.cpus) > cores)
    left_out += [f"not {cores - useful} slow cores"] * (cores > useful)
    where = f" of {len(topology.nodes)} memory nodes" * (len(topology.nodes) > 1)
    return f"{useful} physical cores{where}, {' and '.join(left_out)}"
