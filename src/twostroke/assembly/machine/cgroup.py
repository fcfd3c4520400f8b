"""Reads the memory and the cores that control groups leave to this process: versions 1 and 2, its own group and all
above.

Page cache is not counted as used, because the kernel frees it before it refuses memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from twostroke.assembly.machine.kernel_files import number_of, text_of

UNLIMITED_BYTES = 1 << 60
"""A limit of at least this many bytes means "no limit": version 1 writes a number near 2^63."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """The limit of the tightest group, and the bytes of it that are used, without page cache."""

    limit_bytes: int
    used_bytes: int

    @property
    def free_bytes(self) -> int:
        """Bytes that the group may still take."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class _Mount:
    """One mounted hierarchy. root: the group that is seen at `point`. controllers: the controllers of the hierarchy;
    empty for version 2."""

    point: Path
    root: PurePosixPath
    controllers: frozenset[str]


def group_memory(root: Path = Path("/")) -> GroupMemory | None:
    """Returns the group that leaves the least memory, among this process's own group and all above it. Returns None
    without a limit.

    root: the folder below which /proc and /sys are read.
    """
    found: list[GroupMemory] = []
    for folder, version in _groups(root, "memory"):
        found += _memory_v2(folder) if version == 2 else _memory_v1(folder)
    return min(found, key=lambda memory: memory.free_bytes, default=None)


def group_cores(root: Path = Path("/")) -> float | None:
    """Returns the number of cores by the tightest quota; None without a quota."""
    found: list[float] = []
    for folder, version in _groups(root, "cpu"):
        if version == 2:
            quota, _, period = text_of(folder / "cpu.max").strip().partition(" ")
        else:
            quota, period = (text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _memory_v2(folder: Path) -> Iterator[GroupMemory]:
    used = _without_cache(folder, "memory.current", "")
    for name in ("memory.max", "memory.high"):  # above memory.high the kernel slows a process down
        limit = number_of(folder / name)
        if limit is not None and used is not None:
            yield GroupMemory(limit, used)


def _memory_v1(folder: Path) -> Iterator[GroupMemory]:
    used = _without_cache(folder, "memory.usage_in_bytes", "total_")
    # The second limit holds for parent groups that a container does not see.
    limits = (number_of(folder / "memory.limit_in_bytes"), _stat(folder).get("hierarchical_memory_limit"))
    for limit in limits:
        if limit is not None and limit < UNLIMITED_BYTES and used is not None:
            yield GroupMemory(limit, used)


def _without_cache(folder: Path, name: str, prefix: str) -> int | None:
    used = number_of(folder / name)
    if used is None:
        return None
    stat = _stat(folder)
    return max(0, used - sum(stat.get(f"{prefix}{kind}_file", 0) for kind in ("inactive", "active")))


def _stat(folder: Path) -> dict[str, int]:
    pairs = (line.split() for line in text_of(folder / "memory.stat").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yields the visible folders of this process's group and of all groups above it, each with the version."""
    mounts = list(_mounts(root))
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for mount in mounts:
            if (not names and not mount.controllers) or controller in mount.controllers.intersection(names.split(",")):
                for folder in _upwards(mount, PurePosixPath(path)):
                    yield folder, 1 if mount.controllers else 2


def _upwards(mount: _Mount, group: PurePosixPath) -> Iterator[Path]:
    """Yields the folders from the group up to the mount's own; only the mount's own where the group is not below it."""
    inside = group.is_relative_to(mount.root) and ".." not in group.parts
    parts = group.relative_to(mount.root).parts if inside else ()
    for count in range(len(parts), -1, -1):
        yield mount.point.joinpath(*parts[:count])


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(kinds[-1].split(",")) if kinds[0] == "cgroup" else frozenset()
        yield _Mount(root / _plain(fields[4]).lstrip("/"), PurePosixPath(_plain(fields[3])), controllers)


def _plain(path: str) -> str:
    """Decodes the octal escapes by which mountinfo writes spaces and similar characters."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)
