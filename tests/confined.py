"""Run a command as in a sandbox: `python -m tests.confined RULE[,RULE...] COMMAND...`. No privileges are needed.

    NAME            the system call of this name fails with EPERM, as in most containers
    NAME=ENOSYS     it fails with this error instead
    threads         no thread begins (EAGAIN), as under RLIMIT_NPROC of 1
    processes       no process begins (EAGAIN)
    ipv6            no socket of IPv6 (EAFNOSUPPORT)
    proc            Python finds no file below /proc and /sys

The rules also hold for all processes that the command starts. Linux keeps them by seccomp, so native code meets them as
Python does; `proc` alone is kept by a hook of Python's start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

NUMBERS = {
    "x86_64": dict(
        clone=56, clone3=435, epoll_create1=291, eventfd2=290, fadvise64=221, fallocate=285, fchmod=91, flock=73,
        fork=57, getpriority=140, getrlimit=97, io_uring_setup=425, madvise=28, memfd_create=319, mlock=149, mlock2=325,
        mremap=25, pidfd_open=434, preadv2=327, prlimit64=302, sched_getaffinity=204, sched_setaffinity=203,
        sendfile=40, set_mempolicy=238, setitimer=38, setpriority=141, setrlimit=160, setsid=112, socket=41,
        socketpair=53, statx=332, vfork=58,
    ),
    "aarch64": dict(
        clone=220, clone3=435, epoll_create1=20, eventfd2=19, fadvise64=223, fallocate=47, fchmod=52, flock=32,
        getpriority=141, getrlimit=163, io_uring_setup=425, madvise=233, memfd_create=279, mlock=228, mlock2=284,
        mremap=216, pidfd_open=434, preadv2=286, prlimit64=261, sched_getaffinity=123, sched_setaffinity=122,
        sendfile=71, set_mempolicy=237, setitimer=103, setpriority=140, setrlimit=164, setsid=157, socket=198,
        socketpair=199, statx=291,
    ),
}  # fmt: skip
"""The numbers of Linux's system calls, by machine. aarch64 has no fork and no vfork."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
"""The instructions of classic BPF: load a word, jump if equal, jump if a bit is set, return."""
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
"""Places in struct seccomp_data."""
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
CLONE_THREAD = 0x00010000
IPV6 = 10
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
HIDING = """
import sys
def _hide(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(arguments[0]))
sys.addaudithook(_hide)
"""

Instruction = tuple[int, int, int, int]


def is_possible() -> bool:
    """Whether this machine can refuse system calls: a Linux whose numbers are known."""
    return sys.platform == "linux" and platform.machine() in NUMBERS


def refused(number: int, error: int, *test: Instruction) -> Iterator[Instruction]:
    """Instructions that refuse a call. test: it looks at the first argument, and jumps over the refusal if the call is
    allowed."""
    if not test:
        yield from [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | error)]
        return
    yield (EQUAL, 0, len(test) + 3, number)
    yield (LOAD, 0, 0, FIRST_ARGUMENT_AT)
    yield from test
    yield (RETURN, 0, 0, REFUSE | error)
    yield (LOAD, 0, 0, NUMBER_AT)


def program(rules: Iterable[str]) -> list[Instruction]:
    """The filter for some rules. Raises KeyError for a name that is not known."""
    numbers = NUMBERS[platform.machine()]
    made: list[Instruction] = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUAL, 1, 0, ARCHITECTURES[platform.machine()])]
    made += [(RETURN, 0, 0, ALLOW), (LOAD, 0, 0, NUMBER_AT)]
    for rule in rules:
        name, _, error = rule.partition("=")
        if name in ("threads", "processes"):
            # The C library tries clone3 first, whose flags lie in memory, and then clone.
            made += refused(numbers["clone3"], errno.ENOSYS)
            jump = (ANY_BIT, 0, 1, CLONE_THREAD) if name == "threads" else (ANY_BIT, 1, 0, CLONE_THREAD)
            made += refused(numbers["clone"], errno.EAGAIN, jump)
            made += [each for call in ("fork", "vfork") if name == "processes" and call in numbers
                     for each in refused(numbers[call], errno.EAGAIN)]  # fmt: skip
        elif name == "ipv6":
            made += refused(numbers["socket"], errno.EAFNOSUPPORT, (EQUAL, 0, 1, IPV6))
        elif name != "proc":
            made += refused(numbers[name], getattr(errno, error or "EPERM"))
    return [*made, (RETURN, 0, 0, ALLOW)]


def confine(rules: list[str]) -> None:
    """Puts this process, and all that it starts, under the rules. Raises OSError where the system has no seccomp."""
    made = program(rules)
    content = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in made))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(made), ctypes.addressof(content)))
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, ctypes.addressof(head), 0, 0)):
        if library.prctl(*words):
            raise OSError(ctypes.get_errno(), "seccomp")
    if "proc" in rules:
        folder = Path(tempfile.mkdtemp(prefix="twostroke-hidden-"))
        (folder / "sitecustomize.py").write_text(HIDING)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    confine(sys.argv[1].split(","))
    os.execvp(sys.argv[2], sys.argv[2:])
