"""Limits of control groups, read from file trees as kernels and container runtimes make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from twostroke.assembly.machine.cgroup import GroupMemory, group_cores, group_memory
from twostroke.assembly.settings import env

MB = 1_000_000
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "33 25 0:29 {root} /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory"
V1_CPU = "34 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct"
NO_LIMIT = 9_223_372_036_854_771_712


def tree(root: Path, mounts: list[str], groups: str, files: dict[str, object]) -> Path:
    """files: path below /sys/fs/cgroup -> content."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/sda1 rw", *mounts, ""]))
    (root / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def stat(**values: int) -> str:
    return "\n".join(f"{name} {value}" for name, value in values.items())


def test_version_2_counts_every_group_above_and_no_page_cache(tmp_path: Path) -> None:
    """systemd nests groups like this: the process's own group has no limit, and its slice has one."""
    root = tree(
        tmp_path,
        [V2_MOUNT],
        "0::/user.slice/app.slice/serve.service\n",
        {
            "user.slice/app.slice/serve.service/memory.max": "max",
            "user.slice/app.slice/serve.service/memory.current": 100 * MB,
            "user.slice/app.slice/memory.max": 2_000 * MB,
            "user.slice/app.slice/memory.current": 1_900 * MB,
            "user.slice/app.slice/memory.stat": stat(anon=300 * MB, inactive_file=900 * MB, active_file=700 * MB),
            "user.slice/memory.max": 8_000 * MB,
            "user.slice/memory.current": 2_000 * MB,
            "user.slice/cpu.max": "150000 100000",
            "user.slice/app.slice/cpu.max": "max 100000",
        },
    )
    assert group_memory(root) == GroupMemory(2_000 * MB, 300 * MB)
    assert group_cores(root) == 1.5


def test_version_2_in_a_container_sees_its_own_root(tmp_path: Path) -> None:
    files = {"memory.max": 500 * MB, "memory.high": 400 * MB, "memory.current": 50 * MB, "cpu.max": "50000 100000"}
    root = tree(tmp_path, [V2_MOUNT], "0::/\n", dict(files))
    found = group_memory(root)
    assert found is not None and found.free_bytes == 350 * MB
    assert group_cores(root) == 0.5


@pytest.mark.parametrize("group", ["/../../other", "/outside/the/mount"])
def test_a_group_that_cannot_be_seen_leaves_the_mounts_own(tmp_path: Path, group: str) -> None:
    mount = V2_MOUNT.replace(" / /sys", " /kubepods/pod1 /sys")
    root = tree(tmp_path, [mount], f"0::{group}\n", {"memory.max": 500 * MB, "memory.current": 100 * MB})
    assert group_memory(root) == GroupMemory(500 * MB, 100 * MB)


def test_version_1_with_the_hosts_paths_as_docker_mounts_them(tmp_path: Path) -> None:
    """/proc/self/cgroup names the host's path, and the mount shows that group as its own root."""
    own = "/docker/0123abcd"
    root = tree(
        tmp_path,
        [V1_MEMORY.format(root=own), V1_CPU.format(root=own)],
        f"12:memory:{own}\n5:cpu,cpuacct:{own}\n1:name=systemd:{own}\n",
        {
            "memory/memory.limit_in_bytes": NO_LIMIT,
            "memory/memory.usage_in_bytes": 700 * MB,
            "memory/memory.stat": stat(
                cache=1, total_inactive_file=100 * MB, total_active_file=200 * MB, hierarchical_memory_limit=1_000 * MB
            ),
            "cpu,cpuacct/cpu.cfs_quota_us": 200000,
            "cpu,cpuacct/cpu.cfs_period_us": 100000,
        },
    )
    assert group_memory(root) == GroupMemory(1_000 * MB, 400 * MB)
    assert group_cores(root) == 2.0


def test_version_1_nested_beside_version_2_without_controllers(tmp_path: Path) -> None:
    """systemd's hybrid form: version 2 is mounted elsewhere and has no memory files."""
    hybrid = V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    root = tree(
        tmp_path,
        [hybrid, V1_MEMORY.format(root="/"), V1_CPU.format(root="/")],
        "9:memory:/a/b\n4:cpu,cpuacct:/a\n0::/user.slice\n",
        {
            "memory/a/b/memory.limit_in_bytes": 900 * MB,
            "memory/a/b/memory.usage_in_bytes": 100 * MB,
            "memory/a/memory.limit_in_bytes": 600 * MB,
            "memory/a/memory.usage_in_bytes": 250 * MB,
            "memory/memory.limit_in_bytes": NO_LIMIT,
            "memory/memory.usage_in_bytes": 5_000 * MB,
            "cpu,cpuacct/a/cpu.cfs_quota_us": -1,
            "cpu,cpuacct/a/cpu.cfs_period_us": 100000,
        },
    )
    assert group_memory(root) == GroupMemory(600 * MB, 250 * MB)
    assert group_cores(root) is None


@pytest.mark.parametrize("broken", ["", "0", "0::", "x:y", "::::\n\n0::/a"])
def test_no_groups_and_broken_files_are_no_limit(tmp_path: Path, broken: str) -> None:
    root = tree(tmp_path, [V2_MOUNT, "", "a b c - cgroup2"], broken, {"memory.max": "max", "memory.current": "x"})
    assert (group_memory(root), group_cores(root)) == (None, None)
    assert (group_memory(tmp_path / "nothing"), group_cores(tmp_path / "nothing")) == (None, None)


def test_the_machine_is_what_its_groups_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "group_memory", lambda: GroupMemory(300 * MB, 100 * MB))
    monkeypatch.setattr(env, "group_cores", lambda: 0.5)
    machine = env.read_machine()
    assert (machine.cores, machine.available_bytes) == (1, 200 * MB)
    assert "control group" in machine.memory_source
