"""Topologies of known machines, the number of threads that follows, and the cores of a model's processes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

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
from twostroke.assembly.machine.near_memory import keep_memory_near
from twostroke.assembly.machine.topology import Topology, read_topology
from twostroke.assembly.settings.env import Machine
from twostroke.system import linux
from twostroke.system.cpu_list import ANY, read_cpus, write_cpus


def topology_of(name: str, root: Path, allowed: range | set[int] | None = None) -> Topology:
    planted(name, root)
    found = read_topology(allowed, group_cores(root), root)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "cpus", "packages", "nodes", "cores", "useful"),
    [
        ("xeon_2s", 224, 2, (0, 1), 112, 112),
        ("epyc_8n", 128, 2, tuple(range(8)), 128, 128),
        ("core_hybrid", 32, 1, (0,), 24, 24),
        ("big_little", 8, 1, (0,), 8, 8),
        ("quota_64", 64, 1, (0,), 64, 64),
        ("offline", 12, 1, (0,), 8, 8),
        ("small_vm", 2, 1, (0,), 1, 1),
        ("arm_server", 64, 1, (0,), 64, 64),
        ("xeon_snc2", 224, 2, (0, 1, 2, 3), 112, 112),
        ("ryzen_2ccd", 32, 1, (0,), 16, 16),
        ("quota_v1", 64, 1, (0,), 64, 64),
        ("one_and_memory", 16, 1, (0, 2), 16, 16),
    ],
)
def test_a_known_machine_is_read(
    name: str, cpus: int, packages: int, nodes: tuple[int, ...], cores: int, useful: int, tmp_path: Path
) -> None:
    found = topology_of(name, tmp_path)
    assert (len(found.cpus), found.packages, found.nodes) == (cpus, packages, nodes)
    assert (len(found.cores), len(found.useful_cores)) == (cores, useful)
    assert sorted(cpu.number for core in found.cores for cpu in core) == sorted(cpu.number for cpu in found.cpus)


@pytest.mark.parametrize(
    ("name", "threads", "cpus", "reason"),
    [
        ("xeon_2s", 112, range(112), "112 physical cores of 2 memory nodes, not their 112 further hardware threads"),
        ("epyc_8n", 128, (), "cores this process may use, of 8 memory nodes"),
        (
            "core_hybrid",
            24,
            [*range(0, 16, 2), *range(16, 32)],
            "24 physical cores, not their 8 further hardware threads",
        ),
        ("big_little", 8, (), "cores this process may use"),
        ("quota_64", 3, (), "the control group allows 3.5 of 64 cores"),
        ("offline", 8, range(8), "8 physical cores, not their 4 further hardware threads"),
        ("small_vm", 2, (), "2 hardware threads of one core"),
        ("arm_server", 64, (), "cores this process may use"),
        ("xeon_snc2", 112, range(112), "112 physical cores of 4 memory nodes, not their 112 further hardware threads"),
        ("ryzen_2ccd", 16, range(16), "16 physical cores, not their 16 further hardware threads"),
        ("quota_v1", 3, (), "the control group allows 2.5 of 64 cores"),
        ("one_and_memory", 16, (), "cores this process may use, of 2 memory nodes"),
    ],
)
def test_threads_and_their_places_follow_with_the_reason(
    name: str, threads: int, cpus: Sequence[int], reason: str, tmp_path: Path
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


@pytest.mark.parametrize(
    ("name", "far"),
    [("xeon_snc2", (1.2 + 2.1 + 2.1) / 3), ("one_and_memory", 3.2), ("xeon_2s", 2.0), ("ryzen_2ccd", 2.0)],
)
def test_how_far_other_nodes_are_is_read_or_taken_as_usual(name: str, far: float, tmp_path: Path) -> None:
    found = topology_of(name, tmp_path)
    assert found.far == pytest.approx(far) == found.of_node(0).far
    for path in tmp_path.rglob("distance"):
        path.write_text("10 x 9\n")
    assert topology_of("xeon_2s", tmp_path / "other").far == 2.0
    broken = read_topology(None, None, tmp_path)
    assert broken is not None and broken.far == 2.0


def test_a_cpuset_with_holes_has_the_cores_that_are_left(tmp_path: Path) -> None:
    """The cpuset has half of the cores of one socket and some of the other, one without its first hardware thread."""
    found = topology_of("xeon_snc2", tmp_path, {0, 112, 3, 115, 30, 150, 113})
    choice = choose_cores(found)
    assert found.nodes == (0, 1) and choice.threads == len(found.cores) == 5
    assert set(choice.cpus) == {0, 3, 30, 113, 150} and choice.nodes == (0, 1)
    assert [share_choice(found, choice, place, 2).cpus for place in (0, 1)] == [(0, 113, 3), (30, 150)]


def test_memory_is_preferred_of_the_one_node_that_a_process_is_on(tmp_path: Path) -> None:
    asked: list[int] = []

    def prefer(node: int) -> bool:
        asked.append(node)
        return node != 1

    whole = topology_of("xeon_snc2", tmp_path)
    assert keep_memory_near(whole, tmp_path, prefer) is None and asked == []
    assert [keep_memory_near(whole.of_node(node), tmp_path, prefer) for node in whole.nodes] == [0, None, 2, 3]
    assert asked == [0, 1, 2, 3] and keep_memory_near(None, tmp_path, prefer) is None
    plain = topology_of("ryzen_2ccd", tmp_path / "one")
    assert keep_memory_near(plain, tmp_path / "one", prefer) is None and len(asked) == 4, "one node: nothing changes"


class FakeLibrary:
    """Records the words of a system call. refuses: whether it refuses the call as a sandbox does."""

    def __init__(self, refuses: bool = False) -> None:
        self.calls: list[tuple[int, int, list[int], int]] = []
        self._refuses = refuses

    def syscall(self, number: ctypes.c_long, mode: ctypes.c_long, mask: ctypes.c_long, most: ctypes.c_long) -> int:
        bits = (ctypes.c_ulong * 16).from_address(mask.value)
        nodes = [64 * word + bit for word in range(16) for bit in range(64) if bits[word] >> bit & 1]
        self.calls.append((number.value, mode.value, nodes, most.value))
        return -1 if self._refuses else 0


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
@pytest.mark.parametrize(("processor", "number"), [("x86_64", 238), ("aarch64", 237)])
def test_the_system_is_asked_to_prefer_a_node(
    processor: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeLibrary()
    monkeypatch.setattr(linux.os, "uname", lambda: SimpleNamespace(machine=processor))
    monkeypatch.setattr(linux.ctypes, "CDLL", lambda name: library)
    assert linux.prefer_memory_of(3) and linux.prefer_memory_of(70)
    assert library.calls == [(number, 1, [3], 1025), (number, 1, [70], 1025)]
    assert not linux.prefer_memory_of(-1) and not linux.prefer_memory_of(1024) and len(library.calls) == 2
    monkeypatch.setattr(linux.ctypes, "CDLL", lambda name: FakeLibrary(refuses=True))
    assert not linux.prefer_memory_of(0)
    monkeypatch.setattr(linux.os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    assert not linux.prefer_memory_of(0), "its numbers are not known here"


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        *((0.5, 1), (1.0, 1), (1.2, 1), (1.25, 2), (2.4, 2), (2.5, 3), (3.7, 3), (3.99, 4), (8.9, 8)),
        *((63.5, 63), (64.0, 64)),
    ],
)
def test_a_quota_has_a_thread_for_a_part_of_a_core_that_is_worth_it(quota: float, threads: int, tmp_path: Path) -> None:
    """This holds from a gain of a quarter on, because all threads then stand still for a part of each period."""
    found = replace(topology_of("arm_server", tmp_path), quota=quota)
    assert choose_cores(found).threads == threads


@pytest.mark.parametrize("quota", [100.0, None])
def test_a_quota_beyond_the_machine_is_none(quota: float | None, tmp_path: Path) -> None:
    found = replace(topology_of("arm_server", tmp_path), quota=quota)
    assert choose_cores(found) == choose_cores(topology_of("arm_server", tmp_path / "other"))


@pytest.mark.parametrize(("capacity", "threads", "cpus"), [(400, 4, (4, 5, 6, 7)), (420, 8, ())])
def test_cores_that_are_much_slower_are_left_to_others(
    capacity: int, threads: int, cpus: tuple[int, ...], tmp_path: Path
) -> None:
    found = topology_of("big_little", tmp_path)
    slow = replace(found, cpus=tuple(cpu if cpu.number > 3 else replace(cpu, capacity=capacity) for cpu in found.cpus))
    choice = choose_cores(slow)
    assert (choice.threads, choice.cpus) == (threads, cpus)
    assert choice.reason == ("4 physical cores, not 4 slow cores" if cpus else "cores this process may use")


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
    [("xeon_2s", 2, 56), ("xeon_2s", 4, 28), ("epyc_8n", 8, 16), ("epyc_8n", 16, 8), ("xeon_snc2", 4, 28)],
)
def test_a_process_for_each_node_has_the_cores_of_its_node(
    name: str, count: int, threads: int, tmp_path: Path
) -> None:
    """One process uses each core, all cores are used, and each process is on one node."""
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
