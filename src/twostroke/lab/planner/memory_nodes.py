"""A machine of several memory nodes: whether a replica or a rank on each of them would do more than one process."""

from __future__ import annotations

from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.expect import Room
from twostroke.lab.planner.plan_text import size
from twostroke.lab.planner.target import Target


def node_words(target: Target, ask: Ask, room: Room) -> str:
    """What to start on this machine and why; empty where it has one memory node. Nobody has run it on such a machine.

    Replicas need no exchange, so they are first where as many copies of the weights fit and as many requests run.
    """
    nodes = target.nodes
    if nodes < 2:
        return ""
    far = f"one process would read {(nodes - 1) / nodes:.0%} of its memory from other nodes"
    copies = nodes * (room.weight_bytes + room.kv_bytes_per_sequence)
    usable = int(target.memory_bytes * (1 - KEPT_FREE_SHARE))
    ranks, replicas = f"`serve --tensor-parallel {nodes}`", f"`serve --replicas {nodes}`"
    if ask.concurrency < nodes:
        return (
            f"{nodes} memory nodes: {ranks}, a rank on each node, because {far} and {ask.concurrency} at a time would "
            f"leave nodes of {replicas} idle"
        )
    if copies > usable:
        return (
            f"{nodes} memory nodes: {ranks}, a rank on each node, because {far} and {nodes} copies of the weights need "
            f"{size(copies)} of {size(usable)}"
        )
    return (
        f"{nodes} memory nodes: {replicas}, a replica on each node with weights of its own, because {far} and replicas "
        "exchange nothing"
    )
