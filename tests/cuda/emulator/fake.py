"""A CUDA device for tests: the emulator with the driver's interface, and the package's loader on it."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.tiers import TIER
from twostroke.backends.cpu.library import available_levels
from twostroke.backends.cuda import build
from twostroke.backends.cuda.device import CudaDevice
from twostroke.backends.cuda.library import LIBRARY_NAME

HERE = Path(__file__).parent
WATCH = (
    *("-O1", "-fno-vectorize", "-fno-slp-vectorize", "-fno-builtin"),  # the hooks know accesses of up to 16 bytes
    "-fsanitize-coverage=func,trace-loads,trace-stores",
)
PTX = {"sm_80": ".target sm_80\n", "sm_90a": ".target sm_90a\ngriddepcontrol.wait;\n"}
"""What the fake driver reads of the PTX of each chip. The PTX itself takes the compiler most of a minute."""
SAME_BITS = {"x86_64": "avx2", "aarch64": "neon"}
"""The CPU's level with the bits of the kernels: it has fused multiply-add and no matrix registers."""


def same_level() -> str | None:
    """The level of SAME_BITS, where this CPU runs it."""
    level = SAME_BITS.get(build.cpu_build().machine(), "")
    return level if level in available_levels() else None


def compile_emulated(kernels: Sequence[Path], others: Sequence[Path] = (), watched: bool = False) -> Path:
    """Compiles a shared library of translation units and the emulator. watched: whether accesses of `kernels` to global
    memory are checked too."""
    base = build.cpu_build()
    machine = base.machine()
    level = same_level() or "generic"
    triple = ("-target", base.TRIPLES[machine])
    flags = (
        *(flag for flag in base.FLAGS if not flag.startswith("-fvisibility")),
        *(*base.RELEASE, *triple, f"-mcpu={base.LEVELS[machine][level]}", "-DTS_EMULATED", "-Wno-unused-function"),
        # A GPU faults where an address is no multiple of the element's size; x86 does not.
        *("-fsanitize=alignment", "-fsanitize-trap=alignment"),
    )
    own = (*flags, *(["-DTS_WATCHED"] if watched else []))
    emulator = build.SOURCES / "emulator"
    plain = (*others, emulator / "bulk.cpp", emulator / "emulator.cpp", *([emulator / "watch.cpp"] if watched else []))
    jobs = [(unit, (*own, *(WATCH if watched else ()))) for unit in kernels] + [(unit, own) for unit in plain]
    cache, compiler = base.shared_cache(), base.zig()
    objects = base.compile_all(cache, compiler, jobs, more=build.HEADERS)
    made: Path = base.link(cache, compiler, objects, (*triple, "-nostdlib++", "-shared", "-s"), ".so")
    return made


def fake_driver(watched: bool = False) -> Path:
    """The driver's library, under the name that the loader looks for."""
    return _driver(watched)


@cache
def _driver(watched: bool) -> Path:
    modules = sorted((build.SOURCES / "modules").glob("*.cpp"))
    made = compile_emulated(modules, [HERE / "fake_driver.cpp", HERE / "fake_graphs.cpp"], watched)
    return Path(shutil.copy(made, _folder_of_process() / "libcuda.so.1"))


@cache
def built_folder() -> Path:
    """The package's CUDA files, built outside the package. Only a daily run compiles the PTX for the fake driver, which
    runs no line of it; tests/cuda/test_compile.py has the PTX at each commit."""
    folder = _folder_of_process()
    if TIER.daily:
        build.build_all(folder)
        return folder
    shutil.copy(build.build_host(build.cpu_build().machine()), folder / LIBRARY_NAME)
    for chip in build.CHIPS:
        (folder / f"kernels_{chip}.ptx").write_text(PTX[chip])
    return folder


def _folder_of_process() -> Path:
    """A new folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="twostroke-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def controls(watched: bool = False) -> ctypes.CDLL:
    """The functions by which a test controls and questions the fake driver."""
    return _controls(watched)


@cache
def _controls(watched: bool) -> ctypes.CDLL:
    library = ctypes.CDLL(str(fake_driver(watched)))
    library.fake_reset.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int32]
    library.fake_describe.argtypes = [ctypes.c_int32] * 3
    library.fake_orders.argtypes = [ctypes.c_uint64]
    library.fake_fail.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    library.fake_error.restype = library.fake_target.restype = ctypes.c_char_p
    graphs = ("graph_launches", "graphs_made", "graphs_held", "nodes_changed", "early_edges")
    for name in ("launches", "used", "copies_up", "copies_down", "waits", *graphs):
        getattr(library, f"fake_{name}").restype = ctypes.c_uint64
    return library


def device(
    seed: int = 1, memory_bytes: int = 1 << 30, devices: int = 1, ordinal: int = 0, watched: bool = False
) -> CudaDevice:
    """A new device. seed: the seed of the orders of threads and blocks. watched: whether races in global memory are
    errors too."""
    controls(watched).fake_reset(seed, memory_bytes, devices)
    return CudaDevice(ordinal, str(fake_driver(watched)), built_folder())


def wrong() -> str:
    """The error that the emulator found in the last launch that failed, in either build."""
    return "; ".join(filter(None, (str(controls(each).fake_error().decode()) for each in (False, True))))
