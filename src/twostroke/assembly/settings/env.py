"""The only reader of the environment: variables, cores, memory, folders, and the load of other programs."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from twostroke.assembly.machine.cgroup import group_cores, group_memory
from twostroke.assembly.machine.core_choice import (
    CoreChoice,
    choose_cores,
    close_cpus,
    fast_choice,
    plain_choice,
    share_choice,
)
from twostroke.assembly.machine.topology import Topology, read_topology
from twostroke.system import here

PREFIX = "TWOSTROKE_"


class MemoryLimit(NamedTuple):
    """A limit on memory: the bytes that are free under it, and words about it."""

    free_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that this process may use, read once at start. memory_source: the limit that decides
    `available_bytes`, in words. together: the limit on the process and its children together; None where
    `available_bytes` is this limit. alone: the limit on each process alone (`ulimit -v`); None without one.

    placing: the hardware threads of the `cores`, and the reason for their number. topology: None where the system
    describes none. close: the hardware threads of this process's own memory node, where several processes share the
    machine; otherwise empty, which means all.
    """

    cores: int
    available_bytes: int
    cache_folder: Path
    huge_pages: bool = False
    memory_source: str = ""
    together: MemoryLimit | None = None
    alone: MemoryLimit | None = None
    placing: CoreChoice = plain_choice(1)
    topology: Topology | None = None
    close: tuple[int, ...] = ()

    def share(self, count: int, place: int = 0) -> Machine:
        """Returns the share of process number `place` of `count` on this machine. The memory is divided among the
        processes. A limit on the address space (`ulimit -v`) is not divided, because it holds for each process alone.
        """
        placing = share_choice(self.topology, replace(self.placing, threads=self.cores), place, count)
        close = close_cpus(self.topology, place, count)
        found = replace(self, cores=placing.threads, placing=placing, close=close)
        return found.with_memory_of(count, self.free_together // count)

    @property
    def free_together(self) -> int:
        """The bytes that the process and its children may use together."""
        return self.available_bytes if self.together is None else self.together.free_bytes

    def with_memory_of(self, count: int, num_bytes: int) -> Machine:
        """Returns the machine of one of `count` processes that may use `num_bytes` of the memory which they share. The
        limit on each process alone holds too."""
        together = self.together or MemoryLimit(self.available_bytes, self.memory_source)
        share = MemoryLimit(num_bytes, f"one of {count} ranks' share {together.source}".strip())
        room, source = share if self.alone is None else min(share, self.alone)
        return replace(self, available_bytes=room, memory_source=source, together=together)

    def places(self, count: int) -> list[tuple[int, ...]]:
        """Returns the hardware threads on which each of `count` processes runs; an empty tuple means any."""
        return [close_cpus(self.topology, place, count) for place in range(count)]


@dataclass(frozen=True, slots=True)
class Moment:
    """The load of the machine at one time. at_s: the time in seconds, by time.perf_counter. own_s: seconds that all
    cores have worked for this process. cores: the number of all cores. busy_s: seconds that all cores have worked for
    any program. It includes other virtual machines on the same processors (steal time)."""

    at_s: float
    busy_s: float
    own_s: float
    cores: int


def read_machine() -> Machine:
    """Reads the cores by affinity and quota, the memory by MemAvailable, control groups and address space, the cache
    folder by XDG, and whether a process may ask for huge pages."""
    together, alone = min(_shared_limits()), min(_own_limits(), default=None)
    free_bytes, source = together if alone is None else min(together, alone)
    topology, placing = _processors()
    folder, huge = user_cache_folder(), _huge_pages()
    return Machine(placing.threads, free_bytes, folder, huge, source, together, alone, placing, topology)


def asked_by_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the texts of TWOSTROKE_* variables by the names of their options: TWOSTROKE_KV_MEMORY=2GB becomes
    {"kv_memory": "2GB"}."""
    source = os.environ if environ is None else environ
    return {name[len(PREFIX) :].lower(): value for name, value in source.items() if name.startswith(PREFIX) and value}


def process_environment() -> dict[str, str]:
    """Returns all variables, for a child process."""
    return dict(os.environ)


def no_usage_reports() -> None:
    """Stops Ray from sending usage statistics to its makers, unless the variable RAY_USAGE_STATS_ENABLED is already
    set."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def processor_name() -> str:
    """Returns the processor's own name with the names of its instruction sets that kernels use; empty where the system
    has none."""
    fields: dict[str, str] = {}
    for line in _read_text(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features", "")).split())  # "flags" on x86, "Features" on Arm
    known = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp", "i8mm")
    found = [flag for flag in known if flag in flags]
    return " ".join([fields.get("model name", ""), *found]).strip()


def notify_address() -> str | None:
    """Returns the socket for reports to systemd (NOTIFY_SOCKET); None for a process that systemd does not supervise."""
    return os.environ.get("NOTIFY_SOCKET") or None


def watchdog_s() -> float | None:
    """Returns the longest silence in seconds that systemd allows this process (WATCHDOG_USEC, WATCHDOG_PID); None for
    no limit."""
    limit, owner = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    mine = not owner or owner == str(os.getpid())
    return int(limit) / 1e6 if limit.isdigit() and int(limit) > 0 and mine else None


def hub_offline() -> bool:
    """Returns True where HF_HUB_OFFLINE asks for no network."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def read_moment() -> Moment | None:
    """Returns how many seconds the machine's cores have worked since it started, now. Two such readings give the load
    between them. Returns None where the system does not count other programs' time."""
    fields = _read_text(Path("/proc/stat")).partition("\n")[0].split()
    if len(fields) < 8 or fields[0] != "cpu":
        return None
    user, nice, system, _, _, interrupts, soft_interrupts = (int(field) for field in fields[1:8])
    stolen = int(fields[8]) if len(fields) > 8 else 0
    busy_s = (user + nice + system + interrupts + soft_interrupts + stolen) / here.clock_ticks()
    return Moment(time.perf_counter(), busy_s, time.process_time(), os.cpu_count() or 1)


def others_share(before: Moment | None, after: Moment | None) -> float:
    """Returns the share of all cores, from 0 to 1, that other programs took between two moments; 0 where the system has
    no figure."""
    if before is None or after is None or after.at_s <= before.at_s:
        return 0.0
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(1.0, max(0.0, others_s / ((after.at_s - before.at_s) * after.cores)))


def _processors() -> tuple[Topology | None, CoreChoice]:
    allowed, quota = here.allowed_cpus(), group_cores()
    topology = read_topology(allowed, quota)
    if topology is not None:
        return topology, choose_cores(topology)
    fast = here.performance_cores()
    return None, plain_choice(os.cpu_count() or 1) if fast is None else fast_choice(fast)


def _shared_limits() -> Iterator[MemoryLimit]:
    """Yields each limit on the memory of this process and its children together."""
    yield MemoryLimit(here.memory_bytes(), "of the machine's memory")
    group = group_memory()
    if group is not None:
        yield MemoryLimit(group.free_bytes, f"a control group allows {group.limit_bytes / 1e9:.2f} GB")


def _own_limits() -> Iterator[MemoryLimit]:
    """Yields each limit on the memory of this process alone."""
    address_bytes = address_space_bytes()
    if address_bytes is not None:
        used_pages = _read_text(Path("/proc/self/statm")).partition(" ")[0]
        used = int(used_pages) * here.page_bytes() if used_pages.isdigit() else 0
        words = f"`ulimit -v` allows {address_bytes / 1e9:.2f} GB of addresses"
        yield MemoryLimit(max(0, address_bytes - used), words)


def free_memory_bytes() -> int:
    """Returns the bytes that this process and its children may still take together."""
    return min(_shared_limits()).free_bytes


def address_space_bytes() -> int | None:
    """Returns the limit on this process's addresses (`ulimit -v`) in bytes; None for no limit."""
    return here.address_space_bytes()


def _huge_pages() -> bool:
    allowed = _read_text(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    return "[madvise]" in allowed or "[always]" in allowed


def without_blas_threads() -> None:
    """Keeps NumPy's BLAS library from beginning threads, unless the user asks for them. Kernels have threads of their
    own. Where the system allows no more threads, this library would end the process by SIGINT."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def settle_home() -> None:
    """Gives this process and its children a home folder where the user has none: containers run with user ids that
    have no passwd entry. Without such a folder, the name "~" would be taken literally, as a folder below the
    present one."""
    if os.path.expanduser("~") != "~":
        return
    try:
        os.environ["HOME"] = _temporary_home()
    except OSError:  # no folder can be written: files are looked for where there are none
        os.environ["HOME"] = "/nonexistent"


def _temporary_home() -> str:
    own = Path(tempfile.gettempdir()) / f"twostroke-home-{here.user_number()}"
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
    try:
        found = own.lstat()
        mine = stat.S_ISDIR(found.st_mode) and here.is_own(found)
    except OSError:
        mine = False
    return str(own) if mine else tempfile.mkdtemp(prefix="twostroke-home-")


def user_cache_folder() -> Path:
    """Returns the folder for files that any program of this user can make again. XDG names it; else it is in ~/.cache.
    """
    settle_home()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "twostroke"


def config_folder() -> Path:
    """Returns the folder for this user's choices, which no program can make again. XDG names it; else it is in
    ~/.config."""
    settle_home()
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "twostroke"


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
