"""Chooses how many threads compute and on which hardware threads they stay, with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twostroke.assembly.machine.topology import Topology
from twostroke.system.cpu_list import ANY, write_cpus

MOST_THREADS = 256
"""The most threads that the native pool holds."""
WORTH_A_THREAD = 1.25
"""How many times its whole cores a CPU quota must be, before the fraction gets one more thread. With that thread, the
system stops all threads for a part of each quota period. On two cores a quota of 1.5 did 1.1 to 1.25 times as much with
two threads as with one. A quota of 1.1 did 0.8 to 1.0 times as much."""


@dataclass(frozen=True, slots=True)
class CoreChoice:
    """A chosen number of threads. cpus: the hardware threads that the threads are kept on; empty where the system may
    place them. nodes: the memory nodes that these hardware threads belong to. reason: the reason for the number, in
    words."""

    threads: int
    reason: str
    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = (0,)

    def kept_on(self, threads: int) -> tuple[str, str]:
        """Returns the hardware threads on which `threads` threads are kept, as a list or ANY, and the reason."""
        if not self.cpus:
            return ANY, "the system places threads"
        if threads > len(self.cpus):
            return ANY, f"there are more threads than the {len(self.cpus)} cores that were chosen"
        return write_cpus(self.cpus), "hardware threads of the cores that were chosen, one of each"


def plain_choice(cores: int) -> CoreChoice:
    """Returns one thread for each of `cores`, for a system that describes no topology."""
    return CoreChoice(max(1, min(cores, MOST_THREADS)), "cores this process may use")


def fast_choice(cores: int) -> CoreChoice:
    """Returns one thread for each performance core. cores: the number of performance cores, where the system tells
    nothing more about them."""
    return CoreChoice(max(1, min(cores, MOST_THREADS)), "performance cores of this machine")


def choose_cores(topology: Topology) -> CoreChoice:
    """Chooses one thread for each physical core that is quick enough, up to the quota of the control group.

    The second thread of a core shares its arithmetic, and a very slow core delays each step that waits for it. A single
    core uses all its hardware threads, because one thread alone cannot keep enough reads under way. Threads are kept on
    their cores only where the choice leaves hardware threads out. Under a smaller quota the system moves threads to
    where it has time for them.
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
    """Returns the number of threads for a CPU quota, in cores: its whole cores, plus one where the quota is at least
    WORTH_A_THREAD times as much as these."""
    whole = max(1, math.floor(quota))
    return whole + 1 if quota >= WORTH_A_THREAD * whole else whole


def share_choice(topology: Topology | None, whole: CoreChoice, place: int, count: int) -> CoreChoice:
    """Returns the threads of process number `place` where `count` processes share this machine. Where `count` is the
    number of memory nodes or a multiple of it, each process gets a node or a part of a node, so that its memory is
    close."""
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
    """Returns the hardware threads on which process number `place` of `count` runs as a whole: the threads of its
    memory node. Returns an empty tuple, which means any, where the processes do not divide evenly among the nodes."""
    nodes = () if topology is None else topology.nodes
    if topology is None or len(nodes) < 2 or count % len(nodes):
        return ()
    return tuple(cpu.number for cpu in topology.of_node(nodes[place // (count // len(nodes))]).cpus)


def _words(topology: Topology, threads: int, alone: bool) -> str:
    """Returns words such as "32 physical cores of 2 memory nodes, not their 32 further hardware threads"."""
    cores, useful = len(topology.cores), len(topology.useful_cores)
    if threads == len(topology.cpus) and not alone:
        return "cores this process may use" + f", of {len(topology.nodes)} memory nodes" * (len(topology.nodes) > 1)
    if alone:
        return f"{threads} hardware threads of one core" if threads > 1 else "one core"
    left_out = [f"not their {len(topology.cpus) - cores} further hardware threads"] * (len(topology.cpus) > cores)
    left_out += [f"not {cores - useful} slow cores"] * (cores > useful)
    where = f" of {len(topology.nodes)} memory nodes" * (len(topology.nodes) > 1)
    return f"{useful} physical cores{where}, {' and '.join(left_out)}"
