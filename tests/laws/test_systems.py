"""Calls of one operating system are in one place: csrc/system for the kernels, twostroke.system for Python.

The package can be imported, and generates, where the modules of POSIX are missing and `sys.platform` names another
system.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.laws.test_house import nodes_of
from twostroke.system import linux, macos, windows

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twostroke"
HOME = PACKAGE / "system"
OF_POSIX = {"fcntl", "termios", "resource", "pwd", "grp", "tty", "pty", "posix", "curses", "syslog"}
"""Modules that Python has only on some systems. The code that reads chat lines checks itself whether `readline` is
missing."""
CALLS_OF_POSIX = {
    *("pread", "preadv", "pwrite", "pwritev", "memfd_create", "posix_fadvise", "posix_fallocate", "sched_getaffinity"),
    *("sched_setaffinity", "sysconf", "getuid", "geteuid", "getgid", "fork", "forkpty", "setsid", "killpg", "mkfifo"),
    *("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECT", "sendfile", "eventfd", "add_signal_handler", "setitimer"),
    *("MAP_PRIVATE", "MAP_ANONYMOUS", "SO_LINGER", "TCP_INFO"),
}
"""Attributes of os, signal, mmap, socket and event loops that some systems lack."""
OWNERS = {"os", "signal", "mmap", "socket", "loop", "asyncio.get_running_loop()"}
NATIVE_HEADERS = re.compile(r"#\s*include <(sys/|linux/|mach/|windows|winsock|pthread|sched|unistd|fcntl|poll|time\.)")
NATIVE_CALLS = re.compile(r"\b(syscall|pthread_\w+|sched_\w+|mmap|madvise|posix_memalign|getpid|clock_get\w+)\s*\(")
SYSTEM_MACROS = re.compile(r"\b(__linux__|__APPLE__|_WIN32|_WIN64|__MINGW32__|__unix__)\b")


def faults(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Imports and calls of one system in the source of a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in OF_POSIX)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OF_POSIX:
            yield node.module or ""
        elif isinstance(node, ast.Attribute) and node.attr in CALLS_OF_POSIX and ast.unparse(node.value) in OWNERS:
            yield node.attr


def test_no_module_outside_the_files_of_systems_calls_one() -> None:
    found = {
        str(path.relative_to(PACKAGE)): named
        for path in sorted(PACKAGE.rglob("*.py"))
        if HOME not in path.parents and (named := sorted(set(faults(nodes_of(path)))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source", ["import fcntl", "def f():\n    import resource", "from termios import TIOCOUTQ", "os.pread(1, 2, 3)"]
)
def test_the_law_sees_what_it_forbids(source: str) -> None:
    assert list(faults(ast.walk(ast.parse(source))))


def public(module: ModuleType) -> dict[str, str]:
    """The names that a module of a system offers, with the signatures of its functions."""
    found = {}
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "annotations" and not inspect.ismodule(value) and _own(value):
            found[name] = str(inspect.signature(value)) if inspect.isfunction(value) else type(value).__name__
    return found


def _own(value: object) -> bool:
    return str(getattr(value, "__module__", "twostroke.system")).startswith("twostroke.system")


def test_all_systems_offer_the_same() -> None:
    assert public(linux) == public(macos) == public(windows)
    assert len(public(linux)) > 25


def native() -> list[Path]:
    return [
        path
        for path in sorted((ROOT / "csrc").rglob("*"))
        if path.suffix in (".cpp", ".h") and not {"cuda", "system"} & set(path.relative_to(ROOT / "csrc").parts)
    ]


def test_no_kernel_calls_a_system() -> None:
    found = {}
    for path in native():
        text = re.sub(r"//[^\n]*", "", path.read_text())
        named = [kind.search(text) for kind in (NATIVE_HEADERS, NATIVE_CALLS, SYSTEM_MACROS)]
        if any(named):
            found[str(path.relative_to(ROOT))] = [match[0] for match in named if match]
    assert found == {} and len(native()) > 120


ELSEWHERE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import asyncio, ctypes, subprocess, multiprocessing, numpy, tempfile, socket, uvicorn, concurrent.futures, mmap, signal
import platform, shutil, webbrowser, importlib.metadata, llguidance, tokenizers, jinja2, msgspec, click, starlette
import rich.progress, urllib.request, huggingface_hub, PIL.Image
class Kernel:
    def GlobalMemoryStatusEx(self, status):
        status._obj.available = 8 << 30
    def LockFileEx(self, *arguments):
        return 1
if PLATFORM == "win32":
    ctypes.WinDLL = lambda name, use_last_error: Kernel()
    sys.modules["msvcrt"] = type(sys)("msvcrt")
    sys.modules["msvcrt"].get_osfhandle = lambda descriptor: descriptor
for name in HIDDEN:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
sys.platform = PLATFORM
import twostroke.system
assert twostroke.system.here.__name__.rpartition(".")[2] == NAMED, twostroke.system.here
import pkgutil, importlib
WRAPPED
"""
IMPORT_ALL = """
import twostroke
for found in pkgutil.walk_packages(twostroke.__path__, "twostroke."):
    if not found.name.startswith(("twostroke.__main__", *LEFT_OUT)):
        importlib.import_module(found.name)
print("imported")
"""
GENERATE = """
from twostroke.backends.cpu import library
library.library_path = lambda level: library.Path(library.__file__).parent / "lib" / f"libtwostroke_{level}.so"
from twostroke import LLM, SamplingParams
with LLM("spark", cache="off", threads=2) as llm:
    print(llm.generate(["The sun"], SamplingParams(max_tokens=8, temperature=0))[0].completions[0].token_ids)
"""
EVERYWHERE = ("twostroke.lab.bench.peers.drivers",)
"""Programs for other environments."""


def elsewhere(platform: str, named: str, code: str, hidden: set[str], left_out: tuple[str, ...]) -> str:
    program = ELSEWHERE.replace("WRAPPED", code).replace("HIDDEN", repr(sorted(hidden)))
    for name, value in (("PLATFORM", platform), ("NAMED", named), ("LEFT_OUT", left_out)):
        program = program.replace(name, repr(value))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


OTHERS = tuple(f"twostroke.system.{name}" for name in ("linux", "macos", "posix"))
SYSTEMS = [
    ("win32", "windows", OF_POSIX, (*EVERYWHERE, *OTHERS)),
    ("darwin", "macos", {"termios"}, (*EVERYWHERE, "twostroke.system.linux")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "named", "hidden", "left_out"), SYSTEMS)
def test_every_module_is_imported_on_another_system(
    platform: str, named: str, hidden: set[str], left_out: tuple[str, ...]
) -> None:
    assert elsewhere(platform, named, IMPORT_ALL, hidden, left_out).strip() == "imported"


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "named", "hidden", "left_out"), SYSTEMS)
def test_a_model_generates_by_the_calls_of_another_system(
    platform: str, named: str, hidden: set[str], left_out: tuple[str, ...]
) -> None:
    """It uses this machine's kernels. The tokens are those that it generates by its own calls."""
    own = subprocess.run([sys.executable, "-c", GENERATE], capture_output=True, text=True, timeout=600, check=True)
    assert len(own.stdout.split()) == 8, own.stdout
    assert elsewhere(platform, named, GENERATE, hidden, left_out) == own.stdout
