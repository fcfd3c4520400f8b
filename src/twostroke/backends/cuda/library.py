"""Finds and loads the CUDA host library, declares its functions, and explains its statuses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from twostroke.backends.cpu.library import ABI_VERSION, STATUSES, OpNumbers, Signatures, declared
from twostroke.backends.cuda.images import HOPPER_IMAGE_NAME, IMAGE_NAME, images_by_name
from twostroke.types.errors import BackendError

LIBRARY_FOLDER = Path(__file__).resolve().parent / "lib"
LIBRARY_NAME = "libtwostroke_cuda.so"
DRIVER = "libcuda.so.1"
"""The driver's library. Only the driver of the GPU brings it."""
NO_DRIVER, NO_DEVICE, OLD_DEVICE, FAILED, NO_KERNEL, OLD_DRIVER, NO_ROOM, NO_MEMORY = (
    -20,
    -21,
    -22,
    -23,
    -24,
    -25,
    -26,
    -4,
)
BUILD = "python src/twostroke/backends/cuda/build.py"


class DeviceStruct(Structure):
    """The C struct ts_cuda_device."""

    _fields_ = [
        ("name", c_char * 128),
        ("major", c_int32),
        ("minor", c_int32),
        ("multiprocessors", c_int32),
        ("driver_version", c_int32),
        ("clock_khz", c_int32),
        ("memory_clock_khz", c_int32),
        ("memory_bits", c_int32),
        ("unused", c_int32),
        ("free_bytes", c_int64),
        ("total_bytes", c_int64),
    ]


_P, _I, _L, _U = c_void_p, c_int32, c_int64, c_uint64
_SIGNATURES: Signatures = {
    "ts_op_signature": (c_char_p, [_I]),
    "ts_kernel": (c_char_p, [_P, _I, _I, _I, _L, _L]),
    "ts_run": (_I, [_P, _P, _L, POINTER(c_int64)]),
    "ts_context_destroy": (None, [_P]),
    "ts_cuda_open": (_I, [c_char_p, _I, POINTER(c_void_p)]),
    "ts_cuda_load": (_I, [_P, c_char_p, _L, _I]),
    "ts_cuda_describe": (_I, [_P, POINTER(DeviceStruct)]),
    "ts_cuda_error": (c_char_p, []),
    "ts_cuda_allocate": (_I, [_P, _L, POINTER(c_uint64)]),
    "ts_cuda_free": (_I, [_P, _U]),
    "ts_cuda_zero": (_I, [_P, _U, _L]),
    "ts_cuda_put": (_I, [_P, _U, _P, _L]),
    "ts_cuda_get": (_I, [_P, _P, _U, _L]),
    "ts_cuda_copy": (_I, [_P, _U, _U, _L]),
    "ts_cuda_wait": (_I, [_P]),
    "ts_cuda_collect": (_I, [_P, _P, _L, POINTER(c_int64)]),
    "ts_cuda_graphs": (_I, [_P, _I]),
    "ts_cuda_inputs": (_I, [_P, _P, _L]),
    "ts_cuda_upload": (_I, [_P, _P, _L]),
    "ts_cuda_has_op": (_I, [_I]),
    "ts_cuda_sample": (_I, [_P, _U, _L, _L, _L, _P, _L, c_double, _P, _I, _P, _L, _I]),
    "ts_cuda_begin_step": (_I, [_P, _I]),
    "ts_cuda_follow": (_I, [_P, _P, _L, _P, _L, _L, _I]),
    "ts_cuda_results": (_I, [_P, _I, _P, _L, POINTER(c_double)]),
}


def missing_parts(folder: Path) -> list[str]:
    """Returns the names of the built files that this package lacks. Machine code is not among the names, because it is
    optional."""
    there = {LIBRARY_NAME: folder / LIBRARY_NAME, **images_by_name(folder)}
    needed = (LIBRARY_NAME, IMAGE_NAME, HOPPER_IMAGE_NAME)
    return [name for name in needed if name not in there or not there[name].is_file()]


def require_built(folder: Path) -> None:
    """Raises BackendError where the CUDA backend was not built."""
    missing = missing_parts(folder)
    if missing:
        raise BackendError(
            "The CUDA backend is not compiled.",
            why=f"This installation lacks {', '.join(missing)}: an editable one is made without them.",
            fix=f"Compile it, which takes some seconds and needs the package ziglang: {BUILD}",
        )


@cache
def load_host_library(folder: Path) -> ctypes.CDLL:
    """Returns the host library, with its functions declared. It needs no driver before a device is opened. Raises
    BackendError."""
    require_built(folder)
    library = ctypes.CDLL(str(folder / LIBRARY_NAME))
    found = library.ts_abi_version()
    if found != ABI_VERSION:
        raise BackendError(
            f"{LIBRARY_NAME} speaks ABI {found}, this package {ABI_VERSION}.", fix=f"Build again: {BUILD}"
        )
    return declared(library, _SIGNATURES)


@cache
def cuda_op_numbers(folder: Path) -> Mapping[str, int]:
    """Returns the number of each op that has kernels. Raises BackendError where operands differ from those of an op's
    class."""
    library = load_host_library(folder)
    numbers = OpNumbers(library, "The CUDA library", f"Build again: {BUILD}")
    return {name: number for name, number in numbers.items() if library.ts_cuda_has_op(number)}


def words_of(status: int, library: ctypes.CDLL) -> str:
    """Returns the meaning of a status in words."""
    if status in (NO_DRIVER, NO_DEVICE, OLD_DEVICE, FAILED, OLD_DRIVER, NO_MEMORY):
        return str(library.ts_cuda_error().decode(errors="replace"))
    if status == NO_ROOM:
        return "it keeps the inputs of 32 programs already"
    return STATUSES.get(status, f"status {status}")
