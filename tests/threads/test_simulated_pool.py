"""The model of the pool: properties that hold for any machine, and its agreement with the pool of csrc."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.assembly.machine.topology import Cpu, Topology
from twostroke.lab.threads.counts import READ_ON, SPLITS_EACH, TASKS_EACH, Matrix
from twostroke.lab.threads.machine import CoreRates, PoolJob, PoolMachine
from twostroke.lab.threads.pool import LOOK_S, NOTICE_S, PERIOD_S, SPIN_S, TAKE_S, WAKE_S, Clock, SimulatedPool

ROOT = Path(__file__).resolve().parents[2]
RATES = CoreRates(ops_per_s=100e9, thread_bytes_per_s=10e9, node_bytes_per_s=35e9)
COMPUTING = PoolJob(64, 1e8, 1.0)
READING = PoolJob(64, 1.0, 1e7)


def plain(cores: int, threads: int = 1, quota: float | None = None, nodes: int = 1) -> Topology:
    """Equal cores in equal nodes. The second hardware threads have numbers after all first ones."""
    cpus = [
        Cpu(core + cores * thread, 0, core, core * nodes // cores) for thread in range(threads) for core in range(cores)
    ]
    return Topology(tuple(cpus), quota)


def taken(topology: Topology, threads: int, *jobs: PoolJob, rates: CoreRates = RATES, between_s: float = 0.0) -> Clock:
    machine = PoolMachine(topology, rates)
    pool = SimulatedPool(machine, machine.places(threads))
    pool.run(jobs, between_s)
    return pool.clock


def test_the_figures_of_the_pool_are_those_of_its_source() -> None:
    pool = (ROOT / "csrc/generic/machine/pool.cpp").read_text()
    room = (ROOT / "csrc/generic/linear/linear_room.cpp").read_text()
    tasks = (ROOT / "csrc/generic/linear/linear_tasks.cpp").read_text()
    assert re.search(r"kSpinNs = (\d+);", pool)[1] == str(round(SPIN_S * 1e9))  # type: ignore[index]
    assert f"kReadOn = {READ_ON}, kTasksEach = {TASKS_EACH};" in room
    assert f"threads == 1 ? 1 : threads * {SPLITS_EACH};" in tasks


def test_one_thread_takes_the_sum_of_all_tasks() -> None:
    assert taken(plain(4), 1, COMPUTING).now == pytest.approx(64 * 1e8 / 100e9)
    assert taken(plain(4), 1, READING, between_s=0.5).now == pytest.approx(0.5 + 64 * 1e7 / 10e9)


def test_arithmetic_grows_with_cores_and_reading_to_the_limit_of_memory() -> None:
    alone = taken(plain(8), 1, COMPUTING).now
    assert alone / taken(plain(8), 8, COMPUTING).now == pytest.approx(8, rel=0.01)
    alone = taken(plain(8), 1, READING).now
    gains = [alone / taken(plain(8), threads, READING).now for threads in (2, 4, 8)]
    assert gains == pytest.approx([2.0, 3.5, 3.5], rel=0.01)


def test_the_second_thread_of_a_core_reads_a_little_more_and_computes_nothing_more() -> None:
    topology = plain(2, threads=2)
    assert [cpu.number for cpu in PoolMachine(topology, RATES).places(3)] == [0, 1, 2]
    assert taken(topology, 4, COMPUTING).now == pytest.approx(taken(topology, 2, COMPUTING).now, rel=0.01)
    assert taken(topology, 2, READING).now / taken(topology, 4, READING).now == pytest.approx(1.3, rel=0.01)


def test_a_slow_core_takes_fewer_tasks_and_holds_nothing_up_but_the_last() -> None:
    """Two cores, of which one has half the speed, do nearly 1.5 times what one does, because tasks are claimed one by
    one."""
    topology = Topology((Cpu(0, 0, 0, 0), Cpu(1, 0, 1, 0, 512)))
    gain = taken(topology, 1, COMPUTING).now / taken(topology, 2, COMPUTING).now
    slow_task = 2 * 1e8 / 100e9
    assert gain <= 1.5 and taken(topology, 2, COMPUTING).now <= 64 / 1.5 * 1e8 / 100e9 + slow_task
    few = PoolJob(2, 1e8, 1.0)
    assert taken(topology, 2, few).now == pytest.approx(2 * 1e8 / 100e9, rel=0.01), "the slow core has the last task"


def test_far_memory_slows_reading_alone() -> None:
    near, far = plain(8), plain(8, nodes=2)
    assert taken(far, 8, COMPUTING).now == pytest.approx(taken(near, 8, COMPUTING).now)
    assert taken(far, 1, READING).now / taken(near, 1, READING).now == pytest.approx((1 + far.far) / 2)
    assert {cpu.node for cpu in PoolMachine(far, RATES).places(2)} == {0, 1}


def test_threads_that_polled_begin_sooner_than_those_that_slept() -> None:
    job = PoolJob(2, 1e7, 1.0)
    work = job.ops / RATES.ops_per_s + TAKE_S
    quick = taken(plain(2), 2, job, job, between_s=SPIN_S / 2).now - SPIN_S
    slow = taken(plain(2), 2, job, job, between_s=SPIN_S * 2).now - SPIN_S * 4
    assert quick == pytest.approx(2 * (NOTICE_S + work + NOTICE_S), rel=1e-6)
    assert slow == pytest.approx(2 * (WAKE_S + work + NOTICE_S), rel=1e-6)


def test_a_short_job_is_done_before_a_thread_wakes() -> None:
    job = PoolJob(2, 1e5, 1.0)
    found = taken(plain(2), 2, job, between_s=SPIN_S * 2).now - SPIN_S * 2
    assert found == pytest.approx(2 * (job.ops / RATES.ops_per_s + TAKE_S) + LOOK_S, rel=1e-6) and found < WAKE_S


def test_sleeping_threads_use_no_processor() -> None:
    used = taken(plain(4), 4, COMPUTING, PoolJob(1, 1e10, 1.0)).used
    work = 64 * 1e8 / 100e9 + 1e10 / 100e9
    assert work < used < work + 4 * SPIN_S


def test_a_job_of_one_task_is_the_callers() -> None:
    one = PoolJob(1, 1e8, 1.0)
    assert taken(plain(4), 4, one).now == taken(plain(4), 1, one).now


def test_a_quota_gives_each_period_its_share() -> None:
    """Four threads with two cores' worth of time run for half of each period."""
    jobs = [COMPUTING] * 100
    free, held = taken(plain(4), 4, *jobs), taken(plain(4, quota=2.0), 4, *jobs)
    assert held.now == pytest.approx(2 * free.now, rel=0.05)
    assert held.used == pytest.approx(free.used, rel=0.05)
    assert taken(plain(4, quota=4.0), 4, *jobs).now == pytest.approx(free.now, rel=1e-6)


def test_the_clock_of_a_quota_counts_whole_periods() -> None:
    clock = Clock(quota=1.0)
    clock.pass_by(PERIOD_S / 4, awake=2)
    assert (clock.now, clock.period_used) == pytest.approx((PERIOD_S / 4, PERIOD_S / 2))
    clock.pass_by(PERIOD_S / 2, awake=2)
    assert clock.now == pytest.approx(PERIOD_S + PERIOD_S / 4) and clock.used == pytest.approx(PERIOD_S * 1.5)
    for _ in range(1000):
        clock.pass_by(PERIOD_S / 7, awake=1)
    assert clock.now == pytest.approx(PERIOD_S * 1.5 + 1000 * PERIOD_S / 7), "one pause more"


MACHINES = st.builds(plain, st.integers(1, 6), st.integers(1, 2), st.none(), st.just(1))
JOBS = st.builds(
    PoolJob, st.integers(1, 60), st.floats(1e3, 1e9), st.floats(1.0, 1e8)
)


@given(MACHINES, st.integers(1, 12), st.lists(JOBS, min_size=1, max_size=3), st.floats(0.0, 2e-3))
def test_no_number_of_threads_beats_what_the_machine_can_do(
    topology: Topology, threads: int, jobs: list[PoolJob], between_s: float
) -> None:
    """A list of equal tasks is divided so that no core waits for more than one task and its claims."""
    machine = PoolMachine(topology, RATES)
    places = machine.places(threads)
    pool = SimulatedPool(machine, places)
    pool.run(jobs, between_s)
    together = sum(max(job.tasks * job.ops / RATES.ops_per_s / len(topology.cores), 0) for job in jobs)
    reading = sum(job.tasks * job.read_bytes / RATES.node_bytes_per_s for job in jobs)
    assert pool.clock.now >= max(together, reading) * 0.999 + between_s * len(jobs) - 1e-12
    slowest = sum(_longest(machine, places, job) for job in jobs)
    assert pool.clock.now <= slowest + len(jobs) * (between_s + WAKE_S + NOTICE_S)
    assert pool.clock.used >= pool.clock.now * 0.999


def _longest(machine: PoolMachine, places: tuple[Cpu, ...], job: PoolJob) -> float:
    """Rounds in which all threads do one task each, at the speed of all together, and one task more."""
    speeds = machine.speeds(places, job)
    rounds = math.ceil(job.tasks / len(places)) + 1
    claims = TAKE_S + len(places) * LOOK_S
    alone = job.tasks * (1 / machine.speeds(places[:1], job)[0])
    return alone if len(places) == 1 or job.tasks == 1 else rounds * (1 / min(speeds) + claims)


@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 600), st.integers(1, 256))
def test_a_product_is_divided_without_loss(outputs: int, inputs: int, rows: int, threads: int) -> None:
    job = Matrix(outputs, inputs, 1.0).job(rows, threads)
    assert job.tasks >= 1 and job.tasks * job.ops == pytest.approx(2.0 * rows * outputs * inputs)
    assert job.tasks * job.read_bytes >= outputs * inputs * 0.999
