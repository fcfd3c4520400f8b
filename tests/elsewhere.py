"""Run tests as on another machine: `python -m tests.elsewhere KIND[,KIND...] ARGUMENTS OF PYTEST...`

    arithmetic  NumPy, its BLAS, PyTorch and the C library without the vector instructions that they find at run time
    level=NAME  no kernels above this level: their libraries are hidden
    core        one core, whatever the machine has
    cores=N     Python reports N cores; threads then share those that exist
    day=N       N days later, for Python's clocks
    home        no HOME that can be written, and no name of the user
    locale      the C locale, and a time zone far to the east

A test that fails under one of them depends on its machine, and not on the commit alone. Processes that tests start see
the same machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__

from twostroke.backends.cpu.library import LEVELS, library_path

ARITHMETIC = {
    "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
    "OPENBLAS_CORETYPE": "Nehalem",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
}
CORES = """
import os
os.cpu_count = os.process_cpu_count = lambda: {0}
os.sched_getaffinity = lambda pid: set(range({0}))
"""
DAY = """
import datetime, time
_ahead_s, _time, _time_ns, _gmtime, _localtime = {0} * 86400, time.time, time.time_ns, time.gmtime, time.localtime
time.time = lambda: _time() + _ahead_s
time.time_ns = lambda: _time_ns() + _ahead_s * 10**9
time.gmtime = lambda at_s=None: _gmtime(time.time() if at_s is None else at_s)
time.localtime = lambda at_s=None: _localtime(time.time() if at_s is None else at_s)
"""
HIDDEN = """
import pathlib
_is_file = pathlib.Path.is_file
pathlib.Path.is_file = lambda self: self.name not in {0} and _is_file(self)
"""
Place = Callable[[dict[str, str], list[str], str], None]
"""(environment of the run, lines of its start-up hook, the text after the equals sign)"""


def _home(environment: dict[str, str], hook: list[str], _value: str) -> None:
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        environment.pop(name, None)
    # The files of pip and the compiler stay where they are; tests have a cache folder of their own.
    environment["XDG_CACHE_HOME"] = environment.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    environment["HOME"] = "/proc/nothing"
    hook.append("import pwd\ndef _none(*_): raise KeyError('no such user')\npwd.getpwuid = pwd.getpwnam = _none")


def _level(_environment: dict[str, str], hook: list[str], best: str) -> None:
    hook.append(HIDDEN.format({library_path(level).name for level in LEVELS[LEVELS.index(best) + 1 :]}))


PLACES: dict[str, Place] = {
    "arithmetic": lambda environment, hook, value: environment.update(ARITHMETIC),
    "core": lambda environment, hook, value: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "cores": lambda environment, hook, value: hook.append(CORES.format(int(value))),
    "day": lambda environment, hook, value: hook.append(DAY.format(int(value))),
    "home": _home,
    "level": _level,
    "locale": lambda environment, hook, value: environment.update(LC_ALL="C", LANG="C", TZ="Pacific/Kiritimati"),
}


def main(arguments: list[str]) -> int:
    """Runs the command that the module describes."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    environment, hook = dict(os.environ), list[str]()
    for asked in arguments[0].split(","):
        kind, _, value = asked.partition("=")
        PLACES[kind](environment, hook, value)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text("\n".join(hook))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, environment.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments[1:]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
