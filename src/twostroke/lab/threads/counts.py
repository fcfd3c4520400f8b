"""Finds the number of threads that is the fastest: a decode step and a prompt are simulated with every possible number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from twostroke.assembly.machine.core_choice import CoreChoice, choose_cores
from twostroke.assembly.machine.topology import Topology
from twostroke.lab.threads.machine import CoreRates, PoolJob, PoolMachine
from twostroke.lab.threads.pool import SimulatedPool
from twostroke.types.spec.formats import PANEL_ROWS

READ_ON, TASKS_EACH = 4, 8
"""How the pool divides a matrix product of at most FEW_ROWS rows into tasks (linear_room.cpp). READ_ON: the most panels
of one task. TASKS_EACH: tasks are made so small that each thread gets this many, if there are enough panels."""
SPLITS_EACH, SPLIT_ROWS = 4, 24
"""How the pool divides a matrix product of more than FEW_ROWS rows into tasks: the rows are split into parts
(choose_splits). SPLITS_EACH: the wanted number of tasks for each thread. SPLIT_ROWS: the fewest rows of a part."""
FEW_ROWS = 4
BETWEEN_S = 5e-6
"""Seconds that the caller works alone between two products: norms, rotation, rounding of few rows."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a layer, by which rows are multiplied. byte_share: the bytes of one weight."""

    outputs: int
    inputs: int
    byte_share: float = 0.5625

    def job(self, rows: int, threads: int) -> PoolJob:
        """Returns the product of `rows` rows, divided as the kernels divide it among `threads` threads."""
        panels = math.ceil(self.outputs / PANEL_ROWS)
        each, splits = 1, 1
        if rows <= FEW_ROWS:
            each = max(1, min(READ_ON, panels // (TASKS_EACH * threads)))
        elif threads > 1:
            splits = min(math.ceil(SPLITS_EACH * threads / panels), math.ceil(rows / SPLIT_ROWS))
        tasks = math.ceil(panels / each) * splits
        ops, read = 2.0 * rows * self.outputs * self.inputs, self.outputs * self.inputs * self.byte_share
        return PoolJob(tasks, ops / tasks, read * splits / tasks)


def layer_of(hidden: int, inner: int) -> tuple[Matrix, ...]:
    """Returns the matrices of a usual decoder layer. K and V have hidden / 4 outputs each."""
    return (
        Matrix(hidden + hidden // 2, hidden),
        Matrix(hidden, hidden),
        Matrix(2 * inner, hidden),
        Matrix(hidden, inner),
    )


@dataclass(frozen=True, slots=True)
class CountFigure:
    """The speed with one number of threads. seconds: the simulated time of a layer. used_s: the processor seconds of
    all threads."""

    threads: int
    seconds: float
    used_s: float


def layer_seconds(
    topology: Topology, rates: CoreRates, choice: CoreChoice, layer: tuple[Matrix, ...], rows: int
) -> CountFigure:
    """Simulates one layer with the threads and hardware threads of `choice`.

    Under a quota, the time is an average over many periods: at least the processor seconds of all threads, divided by
    the quota.
    """
    machine = PoolMachine(replace(topology, quota=None), rates)
    kept = choice.cpus if choice.threads <= len(choice.cpus) else ()
    pool = SimulatedPool(machine, machine.places(choice.threads, kept))
    jobs = [matrix.job(rows, choice.threads) for matrix in layer]
    pool.run(jobs, BETWEEN_S)
    began, used = pool.clock.now, pool.clock.used
    pool.run(jobs, BETWEEN_S)
    seconds, used_s = pool.clock.now - began, pool.clock.used - used
    paid = 0.0 if topology.quota is None else used_s / topology.quota
    return CountFigure(choice.threads, max(seconds, paid), used_s)


def counts_to_try(topology: Topology) -> list[int]:
    """Returns the numbers of threads to try: powers of two, the whole numbers next to the quota, and the number of all
    hardware threads. The numbers of all cores, of useful cores and of one node's cores are tried too."""
    most = len(topology.cpus)
    found = {1 << power for power in range(most.bit_length())}
    found |= {len(topology.cores), len(topology.useful_cores), len(topology.of_node(topology.nodes[0]).cores)}
    if topology.quota is not None:
        found |= {math.floor(topology.quota), math.ceil(topology.quota)}
    return sorted(count for count in {*found, most} if 1 <= count <= most)


def all_figures(
    topology: Topology, rates: CoreRates, layer: tuple[Matrix, ...], rows: int
) -> tuple[CountFigure, list[CountFigure]]:
    """Returns (the speed with the threads that `choose_cores` chooses, the speeds with each number of `counts_to_try`).
    The threads of the latter run where the system places them."""
    chosen = layer_seconds(topology, rates, choose_cores(topology), layer, rows)
    tried = [CoreChoice(count, "tried") for count in counts_to_try(topology)]
    return chosen, [layer_seconds(topology, rates, each, layer, rows) for each in tried]
