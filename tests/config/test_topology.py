"""Topologies of known machines, the choice of threads that follows, and where processes of a model stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.fake_machine import planted
from twostroke.assembly.machine.cgroup import group_cores
from twostroke.assembly.machine.core_choice import (
    MOST_THREADS,
    CoreChoice,
    choose_cores,
    close_cpus,
    fast_choice,
    plain_choice,
    share_choice,
)
from twostroke.assembly.machine.topology import Topology, read_topology
from twostroke.assembly.settings.env import Machine
from twostroke.system.cpu_list import ANY, read_cpus, write_cpus


def topology_of(name: str, root: Path, allowed: range | set[int] | None = None) -> Topology:
    planted(name, root)
    found = read_topology(allowed, group_cores(root), root)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "cpus", "packages", "nodes", "cores", "fast"),
    [
        ("xeon_2s", 224, 2, (0, 1), 112, 112),
        ("epyc_8n", 128, 2, tuple(range(8)), 128, 128),
        ("core_hybrid", 32, 1, (0,), 24, 8),
        ("big_little", 8, 1, (0,), 8, 4),
        ("quota_64", 64, 1, (0,), 64, 64),
        ("offline", 12, 1, (0,), 8, 8),
        ("small_vm", 2, 1, (0,), 1, 1),
        ("arm_server", 64, 1, (0,), 64, 64),
    ],
)
def test_a_known_machine_is_read(
    name: str, cpus: int, packages: int, nodes: tuple[int, ...], cores: int, fast: int, tmp_path: Path
) -> None:
    found = topology_of(name, tmp_path)
    assert (len(found.cpus), found.packages, found.nodes) == (cpus, packages, nodes)
    assert (len(found.cores), len(found.performance_cores)) == (cores, fast)
    assert sorted(cpu.number for core in found.cores for cpu in core) == sorted(cpu.number for cpu in found.cpus)


@pytest.mark.parametrize(
    ("name", "threads", "cpus", "reason"),
    [
        ("xeon_2s", 112, range(112), "112 physical cores of 2 memory nodes, not their 112 further hardware threads"),
        ("epyc_8n", 128, (), "cores this process may use, of 8 memory nodes"),
        (
            "core_hybrid",
            8,
            range(0, 16, 2),
            "8 physical performance cores, not their 8 further hardware threads and not 16 efficiency cores",
        ),
        ("big_little", 4, range(4, 8), "4 physical performance cores, not 4 efficiency cores"),
        ("quota_64", 3, (), "the control group allows 3.5 of 64 cores"),
        ("offline", 8, range(8), "8 physical cores, not their 4 further hardware threads"),
        ("small_vm", 2, (), "2 hardware threads of one core"),
        ("arm_server", 64, (), "cores this process may use"),
    ],
)
def test_threads_and_their_places_follow_with_the_reason(
    name: str, threads: int, cpus: range | tuple[int, ...], reason: str, tmp_path: Path
) -> None:
    found = choose_cores(topology_of(name, tmp_path))
    assert (found.threads, found.cpus, found.reason) == (threads, tuple(cpus), reason)


def test_what_a_container_may_use_is_all_that_counts(tmp_path: Path) -> None:
    """A cpuset of two whole cores, of one core, and of a core without its second thread."""
    planted("offline", tmp_path)

    def choice(*allowed: int) -> CoreChoice:
        found = read_topology(allowed, None, tmp_path)
        assert found is not None
        return choose_cores(found)

    assert (choice(0, 8, 1, 9).threads, choice(0, 8, 1, 9).cpus) == (2, (0, 1))
    assert (choice(2, 10).threads, choice(2, 10).cpus) == (2, ())
    assert choice(4).threads == 1
    assert choice(8, 9, 10, 11).threads == 4 and choice(8, 9, 10, 11).cpus == ()


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.0, 1), (3.99, 3), (64.0, 64), (100.0, 64), (None, 64)])
def test_a_quota_is_never_passed_and_leaves_one_thread(quota: float | None, threads: int, tmp_path: Path) -> None:
    found = replace(topology_of("arm_server", tmp_path), quota=quota)
    assert choose_cores(found).threads == threads


def test_a_machine_that_describes_nothing_has_plain_cores(tmp_path: Path) -> None:
    assert read_topology(None, None, tmp_path) is None
    found = read_topology({0, 1, 5}, None, tmp_path)
    assert found is not None and choose_cores(found) == CoreChoice(3, "cores this process may use")
    assert plain_choice(0).threads == fast_choice(0).threads == 1
    assert plain_choice(5000).threads == fast_choice(5000).threads == MOST_THREADS


def test_broken_files_are_read_as_missing_ones(tmp_path: Path) -> None:
    planted("xeon_2s", tmp_path)
    folder = tmp_path / "sys/devices/system/cpu"
    (folder / "cpu0/topology/core_cpus_list").write_text("not a list\n")
    (folder / "cpu1/topology/physical_package_id").write_text("\n")
    (folder / "online").write_text("0-3,,x-9\n")
    found = read_topology(None, None, tmp_path)
    assert found is not None and [cpu.number for cpu in found.cpus] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "count", "threads"),
    [("xeon_2s", 2, 56), ("xeon_2s", 4, 28), ("epyc_8n", 8, 16), ("epyc_8n", 16, 8)],
)
def test_a_process_for_each_node_has_the_cores_of_its_node(
    name: str, count: int, threads: int, tmp_path: Path
) -> None:
    """All cores are used, each by one process, and each process is on one node."""
    found = topology_of(name, tmp_path)
    node_of = {cpu.number: cpu.node for cpu in found.cpus}
    shares = [share_choice(found, choose_cores(found), place, count) for place in range(count)]
    taken = [cpu for share in shares for cpu in share.cpus]
    assert len(taken) == len(set(taken)) == len(found.cores)
    for place, share in enumerate(shares):
        assert share.threads == len(share.cpus) == threads
        assert {node_of[cpu] for cpu in share.cpus} == set(share.nodes) and len(share.nodes) == 1
        assert f"memory node {share.nodes[0]}" in share.reason
        assert set(share.cpus) <= set(close_cpus(found, place, count))
        assert {node_of[cpu] for cpu in close_cpus(found, place, count)} == set(share.nodes)


@pytest.mark.parametrize(("name", "count"), [("xeon_2s", 3), ("arm_server", 2), ("quota_64", 2), ("core_hybrid", 2)])
def test_processes_that_do_not_divide_among_nodes_stand_anywhere(name: str, count: int, tmp_path: Path) -> None:
    found = topology_of(name, tmp_path)
    whole = choose_cores(found)
    share = share_choice(found, whole, count - 1, count)
    assert share.threads == max(1, whole.threads // count) and share.cpus == ()
    assert f"divided among {count} processes" in share.reason and close_cpus(found, 0, count) == ()


def test_a_machines_share_goes_through_the_nodes(tmp_path: Path) -> None:
    found = topology_of("xeon_2s", tmp_path)
    whole = choose_cores(found)
    machine = Machine(whole.threads, 10**12, tmp_path, placing=whole, topology=found)
    assert [machine.share(2, place).placing.nodes for place in (0, 1)] == [(0,), (1,)]
    assert machine.share(2).cores == 56 and machine.share(2).available_bytes == 5 * 10**11
    assert [cpus[0] for cpus in machine.places(2)] == [0, 56] and machine.places(3) == [(), (), ()]


def test_threads_stay_only_on_cores_that_suffice() -> None:
    chosen = CoreChoice(4, "four", cpus=(4, 5, 6, 7))
    assert chosen.kept_on(4)[0] == chosen.kept_on(1)[0] == "4-7"
    assert chosen.kept_on(5)[0] == ANY and "more threads" in chosen.kept_on(5)[1]
    assert CoreChoice(4, "four").kept_on(4)[0] == ANY


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_as_it_was_written(numbers: frozenset[int]) -> None:
    assert set(read_cpus(write_cpus(numbers))) == numbers
    assert read_cpus("any") == () and read_cpus("0-3,8") == (0, 1, 2, 3, 8)
