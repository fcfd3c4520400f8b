"""A machine of several memory nodes: whether one process, a rank on each node or a replica on each node is the fastest.

The figures are predictions for a guessed processor, because only their ratios count. None of the three has been
measured on such a machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from twostroke.assembly.settings.env import Machine
from twostroke.cost.exchange import LinkRates
from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.closed_loop import decoding
from twostroke.lab.planner.expect import Room, room_for
from twostroke.lab.planner.plan_text import size
from twostroke.lab.planner.target import Nodes, Target
from twostroke.models.common.divided import ParallelPlan, cost_of
from twostroke.ops.passes.division import Division
from twostroke.ops.program.model import Model
from twostroke.types.errors import ConfigError
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_guess import GUESSED_BYTES_PER_S, GUESSED_MEETING_S, guessed_cpu

ONE, RANKS, REPLICAS = "one process", "ranks", "replicas"
LEAST_GAIN = 1.1
"""Several processes are chosen where their predicted rate is at least this many times the rate of one process. A
smaller gain may be an error of the prediction."""
GUESSED_LINK = LinkRates(GUESSED_MEETING_S, GUESSED_BYTES_PER_S, "as a guess")


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """How a model is spread over memory nodes. way: ONE process for all nodes, RANKS or REPLICAS, `count` of them.
    reason: words for the user. rates: the predicted tokens a second of each possible way. streams: the sequences that
    decode together in this prediction."""

    way: str
    count: int
    reason: str
    rates: dict[str, float]
    streams: int

    @property
    def options(self) -> dict[str, str]:
        """The engine's options by which it runs with a rank on each node; empty for one process, and for replicas."""
        return {"tensor_parallel": str(self.count)} if self.way == RANKS else {}

    @property
    def replicas(self) -> int | None:
        """The number of replicas where one runs on each node; None for one process or ranks."""
        return self.count if self.way == REPLICAS else None

    @property
    def flag(self) -> str:
        """The option by which `serve` starts one process, ranks or replicas, as chosen."""
        flags = {RANKS: f"--tensor-parallel {self.count}", REPLICAS: f"--replicas {self.count}"}
        return flags.get(self.way, "--one-process")


def nodes_of(machine: Machine, level: str, threads: int | None = None) -> Nodes | None:
    """Returns the memory nodes of this machine. Returns None where there is only one node, or where there are fewer
    threads than nodes, as under a quota. threads: the number of threads that is asked for; None for one on each core.
    """
    topology, count, all_threads = machine.topology, len(machine.placing.nodes), threads or machine.cores
    if topology is None or count < 2 or all_threads < count:
        return None
    return Nodes(count, all_threads // count, level, topology.far)


def choose_way(
    spec: Model,
    ask: Ask,
    room: Room,
    nodes: Nodes,
    link: LinkRates | None = None,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> NodeChoice:
    """Chooses between one process, a rank on each node and a replica on each node: the fastest in decode with
    `ask.concurrency` streams. refused: the ones that cannot be used, with the reason. link: the measured exchange
    between processes of this machine; None takes a guess."""
    streams, count = ask.concurrency, nodes.count
    why = {**_impossible(spec, room, count), **refused}
    rates = {ONE: _rate(spec, ask, streams, _spread(nodes))}
    if REPLICAS not in why:
        busy = min(count, streams)
        rates[REPLICAS] = busy * _rate(spec, ask, math.ceil(streams / busy), _node(nodes)) * _evenness(streams, busy)
    if RANKS not in why:
        divided = ParallelPlan(_division(count), link or GUESSED_LINK)
        rates[RANKS] = _rate(spec, ask, streams, _node(nodes), divided)
    way = max(rates, key=lambda each: rates[each])
    if rates[way] < LEAST_GAIN * rates[ONE]:
        way = ONE
    reason = _reason(way, rates, nodes, streams, why)
    return NodeChoice(way, 1 if way == ONE else count, reason, rates, streams)


def node_words(spec: Model, ask: Ask, target: Target) -> str:
    """Returns a sentence: with which option `serve` should start on this machine, and why. Empty where it has one
    memory node."""
    if target.nodes is None:
        return ""
    found = choose_way(spec, ask, room_for(spec, ask, target), target.nodes, target.link)
    return f"{target.nodes.count} memory nodes: `serve {found.flag}`, {found.reason}"


def _impossible(spec: Model, room: Room, count: int) -> dict[str, str]:
    """Returns whichever of RANKS and REPLICAS cannot be used, with the reason: the model's heads cannot be divided, or
    the memory is too small."""
    found = {}
    try:
        _division(count).own(spec)
    except ConfigError:
        found[RANKS] = f"{count} ranks do not divide this model's heads"
    copies = count * (room.weight_bytes + room.buffer_bytes + room.sequence_bytes)
    usable = int(room.memory_bytes * (1 - KEPT_FREE_SHARE))
    if copies > usable:
        found[REPLICAS] = f"{count} copies of the weights need {size(copies)} of {size(usable)}"
    return found


def _division(count: int) -> Division:
    found = Division.asked(count, 1)
    if found is None:
        raise ValueError(f"{count} processes divide nothing")
    return found


def _node(nodes: Nodes) -> HardwareSpec:
    """Returns the hardware of one node, which reads its own memory."""
    return guessed_cpu(nodes.threads, nodes.level)


def _spread(nodes: Nodes) -> HardwareSpec:
    """Returns the hardware for one process on all N nodes. Its memory is spread over the nodes, so (N - 1) / N of what
    a core reads is on another node."""
    node, count = _node(nodes), nodes.count
    slower = (1 + (count - 1) * nodes.far) / count
    return replace(
        node,
        read_bytes_per_s=count * node.read_bytes_per_s / slower,
        f32_flops_per_s=count * node.f32_flops_per_s,
        bf16_flops_per_s=count * node.bf16_flops_per_s,
        int8_ops_per_s=count * node.int8_ops_per_s,
    )


def _rate(
    spec: Model, ask: Ask, streams: int, machine: HardwareSpec, divided: ParallelPlan | None = None
) -> float:
    """Returns the tokens a second of `streams` streams that decode together on one machine, or on ranks of such
    machines."""
    cost = cost_of(spec, ask.weights, ask.kv_kind, machine, divided)
    return streams / cost.predict(decoding(ask, streams)).seconds


def _evenness(streams: int, busy: int) -> float:
    """Returns how evenly streams are spread over `busy` replicas: the number of streams, divided by the number that
    would run if every replica had as many as the busiest one."""
    return streams / (busy * math.ceil(streams / busy))


def _reason(way: str, rates: dict[str, float], nodes: Nodes, streams: int, why: dict[str, str]) -> str:
    """Returns why one process, ranks or replicas were chosen, with the gain, and why others were left out."""
    far = (nodes.count - 1) / nodes.count
    of_streams = "one stream" if streams == 1 else f"{streams} streams"
    left_out = "".join(f"; {name} cannot be: {reason}" for name, reason in why.items() if name != way)
    if way == ONE:
        others = [f"{name} {rate / rates[ONE]:.2f} times" for name, rate in rates.items() if name != ONE]
        gains = f" ({' and '.join(others)} what it does with {of_streams})" if others else ""
        return f"because nothing is predicted to do {LEAST_GAIN:g} times as much{gains}{left_out}"
    place = "a rank on each node" if way == RANKS else "a replica on each node with weights of its own"
    return (
        f"{place}, because it is predicted to do {rates[way] / rates[ONE]:.2f} times what one process does with "
        f"{of_streams}: that would read {far:.0%} of its memory from other nodes{left_out}"
    )
