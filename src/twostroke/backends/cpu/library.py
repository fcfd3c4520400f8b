"""Finds and loads the native libraries, and declares their functions."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator, Mapping
from ctypes import POINTER, Structure, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from twostroke.ops.program.op import Op, signature
from twostroke.ops.registry import op_named
from twostroke.system import here
from twostroke.types.errors import BackendError

ABI_VERSION = 25
BUILD = "python src/twostroke/backends/cpu/build.py"
LEVELS_OF = {
    "x86_64": ("generic", "avx2", "avxvnni", "avx512", "amx"),
    "aarch64": ("generic", "neon", "dotprod", "i8mm"),
}
"""The levels of each architecture, in rising order. The number of a level in the ABI is its index in this tuple."""
_NAMED = platform.machine().lower()
LEVELS = LEVELS_OF.get({"arm64": "aarch64", "amd64": "x86_64"}.get(_NAMED, _NAMED), ("generic",))
"""The levels of this machine's architecture."""

RANK_LOST = -7
STATUSES = {
    -1: "a shape or stride does not fit",
    -2: "a format is not known",
    -3: "an index lies outside its range",
    -4: "there is no memory for scratch space",
    -5: "a pointer is missing",
    -6: "a value is not finite",
    RANK_LOST: "another rank has ended, or did not come in time",
}


class WeightStruct(Structure):
    """The C struct ts_weight, which describes a packed weight to native code."""

    _fields_ = [
        ("kind", c_int32),
        ("group", c_int32),
        ("rows", c_int64),
        ("columns", c_int64),
        ("data", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("experts", c_int64),
        ("rotated", c_int64),
    ]


class KVLayerStruct(Structure):
    """The C struct ts_kv_layer, which describes the K and V of one layer to native code."""

    _fields_ = [
        ("kind", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("value_dim", c_int32),
        ("num_pages", c_int64),
        ("data", c_void_p),
        ("latent", c_int64),
    ]


_P, _I, _L, _D = c_void_p, c_int32, c_int64, ctypes.c_double
Signatures = Mapping[str, tuple[object, list[object]]]
_SIGNATURES: Signatures = {
    "ts_abi_version": (_I, []),
    "ts_level_name": (ctypes.c_char_p, []),
    "ts_levels": (_I, []),
    "ts_context_create": (_P, [_I]),
    "ts_context_destroy": (None, [_P]),
    "ts_context_scratch_bytes": (_L, [_P]),
    "ts_context_read": (_I, [_P, _I]),
    "ts_context_join": (_I, [_P, _P]),
    "ts_exchange_bytes": (_L, [_I, _L]),
    "ts_exchange_shared": (_P, [_P, _I, _I, _L, _L]),
    "ts_exchange_sockets": (_P, [_P, _I, _I, _L]),
    "ts_exchange_begin": (None, [_P, _L]),
    "ts_exchange_end": (None, [_P]),
    "ts_exchange_spent": (None, [_P, _P]),
    "ts_exchange_destroy": (None, [_P]),
    "ts_run": (_I, [_P, _P, _L, POINTER(c_int64)]),
    "ts_op_signature": (ctypes.c_char_p, [_I]),
    "ts_kernel": (ctypes.c_char_p, [_P, _I, _I, _I, _L, _L]),
    "ts_settle": (_I, [_P, _L]),
    "ts_populate": (_I, [_P, _L]),
    "ts_weigh": (_I, [_P, _L, _D, _D, _P, _I, _P]),
    "ts_exponent_sums": (_I, [_P, _P, _L, _D, _D, _P]),
    "ts_nearness": (_I, [_P, _L, _D, _D, _D, _P]),
    "ts_spread_sums": (_I, [_P, _L, _D, _D, _P]),
    "ts_score_near": (_I, [_P, _L, *[_D] * 5, _P, _P]),
    "ts_limit_spread": (_I, [_P]),
    "ts_limit_read": (_L, [_P, _P, _L]),
    "ts_limit_rate": (_L, [_P, _I, _L]),
    "ts_pack": (_I, [_P, _P, _I, _L, _L, _L, _I, _I, _L, _L, _P, _P, _L]),
    "ts_pack_blocks": (_I, [_I, _P, _L, _L, _L, _I, _P, _L]),
}

_D = ctypes.c_double
ROTARY_ROWS: Signatures = {"ts_rotary_rows": (_I, [_P, _L, _L, _L, _P, _D, _D, _P, _P])}
"""The signature of ts_rotary_rows (rotary_rows.h), which computes cosines and sines for rotary positions. A library may
lack this function; NumPy then computes them."""


def library_path(level: str) -> Path:
    """Returns the path of the library of a level, built or not."""
    return Path(__file__).resolve().parent / "lib" / f"libtwostroke_{level}{here.LIBRARY_SUFFIX}"


@cache
def load_library(level: str) -> ctypes.CDLL:
    """Returns the library of one level, with its functions declared. Raises BackendError. CDLL releases the GIL during
    calls."""
    path = library_path(level)
    if level not in LEVELS:
        raise BackendError(
            f"This machine has no kernels of level {level}.",
            why=f"Its architecture is {platform.machine()}, whose levels are {', '.join(LEVELS)}.",
            fix=f"--cpu-level {LEVELS[0]}, or no --cpu-level for the best that this CPU runs",
        )
    if not path.is_file():
        raise BackendError(
            f"The native kernels for {level} are missing.",
            why=f"{path.name} is not in the package; an editable installation has the best level of its machine alone.",
            fix=f"Install again (pip install .), or build them: {BUILD}",
        )
    library = ctypes.CDLL(str(path))
    found = library.ts_abi_version()  # checked before the functions are looked up: an older library may lack some
    if found != ABI_VERSION:
        raise BackendError(
            f"{path.name} speaks ABI {found}, this package {ABI_VERSION}.",
            fix="Install again: pip install --force-reinstall .",
        )
    try:
        return declared(library, _SIGNATURES)
    except AttributeError as error:  # functions are added without a new version
        what = f"{path.name} is older than this package."
        raise BackendError(what, why=f"{error}.", fix=f"Build it: {BUILD}") from None


def declared(library: ctypes.CDLL, signatures: Signatures) -> ctypes.CDLL:
    """Declares the results and arguments of the library's functions, and returns the library."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def built_levels() -> list[str]:
    """Returns the levels whose libraries are in the package, lowest first. An editable installation may have only one.
    """
    return [level for level in LEVELS if library_path(level).is_file()]


def lowest_library() -> ctypes.CDLL:
    """Returns the library of the lowest level that was built. Functions that are no ops need no level (level.cpp,
    settle.cpp), so they may be called on every CPU. Raises BackendError."""
    return load_library(next(iter(built_levels()), LEVELS[0]))


def runnable_levels() -> list[str]:
    """Returns the levels that this CPU runs, built or not, lowest first. Raises BackendError."""
    bits = int(lowest_library().ts_levels())
    return [level for place, level in enumerate(LEVELS) if bits >> place & 1]


@cache
def op_numbers(level: str) -> Mapping[str, int]:
    """Returns the number of each op in a level's library, by the op's name."""
    return OpNumbers(load_library(level), f"The {level} kernels", f"Build the kernels again: {BUILD}")


class OpNumbers(Mapping[str, int]):
    """The number of each op in a library, by the op's name.

    Asking for a number compares the operands in the library with those of the op's class. The module of the class is
    imported only then, because a model calls few of the ops. Raises BackendError where the operands differ, KeyError
    for an op that the library does not have.
    """

    def __init__(self, library: ctypes.CDLL, what: str, fix: str) -> None:
        """Reads the ops of a native library. what: the name of the library in errors. fix: the advice in errors."""
        self._what, self._fix = what, fix
        self._said: dict[str, str] = {}
        while (text := library.ts_op_signature(len(self._said))) is not None:
            self._said[text.decode().partition(":")[0]] = text.decode()
        self._places = {name: place for place, name in enumerate(self._said)}
        self._same: set[str] = set()

    def __getitem__(self, name: str) -> int:
        number = self._places[name]
        if name not in self._same:
            op = op_named(name)
            if op is None or native_signature(op) != self._said[name]:
                raise BackendError(
                    f"{self._what} and this package disagree on the operands of {name}.",
                    why=f"The library says {self._said[name]!r}.",
                    fix=self._fix,
                )
            self._same.add(name)
        return number

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def run_words(library: ctypes.CDLL, context: Any, address: int, count: int) -> tuple[int, int]:
    """Runs encoded calls: `count` 64-bit words at `address`. Returns the status, and how many calls were run before the
    one that refused."""
    ran = ctypes.c_int64()
    status = library.ts_run(context, address, count, ctypes.byref(ran))
    return int(status), int(ran.value)


def address_of(found: Structure) -> int:
    """Returns the address of a struct."""
    return ctypes.addressof(found)


def native_signature(op: type[Op]) -> str:
    """Returns an op's operands in the form of ts_op_signature."""
    return op.NAME + ":" + "".join(f" {operand.kind.value} {operand.name};" for operand in signature(op))


def best_level() -> str:
    """Returns the highest level that this CPU runs and that was built. Raises BackendError where there is none."""
    found = available_levels()
    if not found:
        raise BackendError(
            "No kernels for this CPU are built.",
            why=f"It runs {', '.join(runnable_levels())}; built are {', '.join(built_levels())}.",
            fix=f"Build them: {BUILD}",
        )
    return found[-1]


def better_level() -> str | None:
    """Returns the highest level that this CPU runs, where it is not built; None where it is built."""
    best = runnable_levels()[-1]
    return None if best == best_level() else best


def require_level(level: str) -> None:
    """Raises BackendError for a level that this machine does not have, or that this CPU cannot run."""
    load_library(level)
    runs = runnable_levels()
    if level not in runs:
        raise BackendError(
            f"This CPU cannot run the {level} kernels.",
            why=f"It lacks their instructions; it runs {', '.join(runs)}.",
            fix=f"Leave --cpu-level out, or give --cpu-level {best_level()}.",
        )


def available_levels() -> list[str]:
    """Returns every built level that this CPU runs, lowest first."""
    built = built_levels()
    return [level for level in runnable_levels() if level in built]
