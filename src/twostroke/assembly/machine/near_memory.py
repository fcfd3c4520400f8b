"""Keeps the memory of a process on its own memory node, where it runs on one of several: new pages come from that node.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twostroke.assembly.machine.topology import Topology, node_numbers
from twostroke.system import here


def own_node(topology: Topology | None, root: Path = Path("/")) -> int | None:
    """Returns the memory node of this process's processors. Returns None where they are on several nodes, or the
    machine has only one."""
    if topology is None or len(topology.nodes) != 1 or len(node_numbers(root)) < 2:
        return None
    return topology.nodes[0]


def keep_memory_near(
    topology: Topology | None, root: Path = Path("/"), prefer: Callable[[int], bool] = here.prefer_memory_of
) -> int | None:
    """Makes the process prefer memory of its own node, whatever policy it has inherited, for example from `numactl
    --interleave`.

    Returns the node; None where nothing was changed. Call it before threads are started and memory is touched.
    """
    node = own_node(topology, root)
    return node if node is not None and prefer(node) else None
